#!/usr/bin/env bash
# Train in epochs: embed, plan, check the plan, train. If you start it again, it continues after the
# last checkpoint.
#
#   epochs.sh [PAIRS [FOLDER [EPOCHS]]]
set -euo pipefail

pairs=${1:-sample_data/pairs.parquet}
folder=${2:-run}
epochs=${3:-3}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"

for ((epoch = 0; epoch < epochs; epoch++)); do
  plan=$folder/plan-$epoch.npy
  checkpoint=$folder/checkpoint-$epoch.pt
  following=$folder/checkpoint-$((epoch + 1)).pt
  if [[ -e $following ]]; then
    continue
  fi

  python "$here/embed.py" "$pairs" "$checkpoint" "$folder"
  embeddings=("$folder/x.npy" --pair "$folder/y.npy")
  # A new seed per epoch gives each row different neighbours.
  batchplan partition "${embeddings[@]}" --batch-size 64 --seed "$epoch" --output "$plan" \
    --force --quiet
  batchplan check "$plan" "${embeddings[@]}" --relative-margin 0.1 \
    --fail-under hardness=0.02 --fail-over false_negatives=0.05
  python "$here/train_epoch.py" "$pairs" "$plan" "$checkpoint" "$following"
done
