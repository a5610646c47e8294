"""The page in a real browser."""

import pytest

from tests.browser import HEIGHT, WINDOWS, asked_for, show

TEXTS = """
const visible = one => one.getClientRects().length && !one.closest('details:not([open]) > dl');
const own = one => [...one.childNodes].some(n => n.nodeType === 3 && n.data.trim());
const background = one => {
  for (; one; one = one.parentElement) {
    const colour = getComputedStyle(one).backgroundColor;
    if (colour !== 'rgba(0, 0, 0, 0)') return colour;
  }
};
return [...document.body.querySelectorAll('*')].filter(one => visible(one) && own(one)).map(one => {
  const style = getComputedStyle(one), svg = one.ownerSVGElement;
  const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
  return [one.textContent.trim().slice(0, 40), svg ? style.fill : style.color, background(one),
          scale * parseFloat(style.fontSize)];
});
"""
# Puts the elements of each picture into the page, where a script can measure them.
INLINE = """
for (const image of document.querySelectorAll('figure img')) {
  const bytes = Uint8Array.from(atob(image.src.split(',')[1]), one => one.charCodeAt(0));
  const parsed = new DOMParser().parseFromString(new TextDecoder().decode(bytes), 'image/svg+xml');
  const svg = parsed.documentElement, {width, height} = image.getBoundingClientRect();
  svg.setAttribute('width', width);
  svg.setAttribute('height', height);
  svg.style.margin = '0 auto';
  image.replaceWith(svg);
}
"""
BOXES = """
return [...document.querySelectorAll('figure svg, figure svg text')].map(one => {
  const box = one.getBoundingClientRect();
  const frame = one.closest('figure').getBoundingClientRect();
  return [one.tagName + ' ' + one.textContent.slice(0, 30), box.left, box.right, box.top,
          box.bottom, frame.left, frame.right, frame.top, frame.bottom];
});
"""


WORDS = """
return [...document.querySelectorAll('.by-plan tbody td, .ranks thead th')].flatMap(cell =>
  [...cell.textContent.matchAll(/\\S+/g)].map(word => {
    const range = document.createRange();
    range.setStart(cell.firstChild, word.index);
    range.setEnd(cell.firstChild, word.index + word[0].length);
    return [word[0], new Set([...range.getClientRects()].map(box => box.top)).size];
  }));
"""


@pytest.fixture(params=WINDOWS, ids=str)
def opened(request, chromium, made):
    """The browser with the page in a window of this width and scheme, and the width."""
    width, scheme = request.param
    show(chromium, made.path.as_uri(), width, scheme)
    return chromium, width


@pytest.fixture
def inlined(opened):
    opened[0].execute_script(INLINE)
    return opened


def channels(colour):
    return [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")]


def luminance(colour):
    parts = [part / 255 for part in channels(colour)[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_it_asks_for_nothing_and_complains_of_nothing(opened, made):
    driver, _ = opened
    asked = asked_for(driver)
    assert made.path.as_uri() in asked
    assert all(one.startswith("data:") for one in asked if one != made.path.as_uri())
    assert driver.get_log("browser") == []
    widths = driver.execute_script("return [...document.images].map(one => one.naturalWidth)")
    assert widths == [453] * 7  # 340 points


def test_nothing_sticks_out(inlined):
    driver, width = inlined
    wide, inner = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert inner == width
    assert wide <= width
    boxes = driver.execute_script(BOXES)
    assert sum(name.startswith("svg") for name, *_ in boxes) == 7
    for name, left, right, top, bottom, *frame in boxes:
        assert right - left > 1, name
        assert bottom - top > 1, name
        assert frame[0] <= left, name
        assert right <= frame[1], name
        assert frame[2] <= top, name
        assert bottom <= frame[3], name


def test_columns_fit_the_window(opened):
    driver, width = opened
    lefts = driver.execute_script(
        "return [...document.querySelectorAll('figure')].map(f => f.getBoundingClientRect().left)"
    )
    # One column, or two.
    assert len({round(left) for left in lefts}) == {390: 1, 1280: 2}[width]


def test_all_text_can_be_read(inlined):
    driver, _ = inlined
    texts = driver.execute_script(TEXTS)
    assert len(texts) > 150
    for text, colour, background, size in texts:
        low, high = sorted((luminance(colour), luminance(background)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (text, colour, background)
        assert size >= 9.9, text


def test_numbers_and_heads_stay_whole(opened):
    """Each word of the table of figures, and of the heads of columns, is on one line."""
    driver, _ = opened
    words = driver.execute_script(WORDS)
    assert len(words) > 40
    assert [word for word, lines in words if lines > 1] == []


def test_names_of_users_run_nothing(opened):
    driver, _ = opened
    assert driver.execute_script("return document.scripts.length") == 0
    first = driver.execute_script("return document.querySelectorAll('.plans h2')[1].textContent")
    assert first == "<script>alert(1)</script> & $x$ similar.npy"


def test_labels_do_not_overlap(inlined):
    driver, _ = inlined
    texts = driver.execute_script(
        "return [...document.querySelectorAll('figure')].map(f => [f.id, "
        "[...f.querySelectorAll('svg text')].map(t => [t.textContent, t.getBoundingClientRect()])])"
    )
    for name, some in texts:
        for i, (one, a) in enumerate(some):
            for other, b in some[:i]:
                wide = min(a["right"], b["right"]) - max(a["left"], b["left"])
                high = min(a["bottom"], b["bottom"]) - max(a["top"], b["top"])
                # Boxes of lines are higher than their letters.
                assert wide <= 1 or high <= 4, (name, one, other)


CARDS = """
return [...document.querySelectorAll('.grid')].map(grid => {
  const room = grid.getBoundingClientRect().width, rows = {};
  for (const card of grid.children) {
    const box = card.getBoundingClientRect(), top = Math.round(box.top);
    rows[top] = (rows[top] ?? -16) + box.width + 16;
  }
  return Object.values(rows).map(filled => filled - room);
});
"""


def test_no_card_leaves_a_row_unfilled(opened):
    driver, _ = opened
    grids = driver.execute_script(CARDS)
    assert len(grids) == 5
    for grid in grids:
        assert all(abs(missing) < 2 for missing in grid), grid


FIRST_SCREEN = """
const room = document.querySelector('main').getBoundingClientRect(), filled = [];
for (const card of document.querySelectorAll('article, figure, details, .scroll')) {
  const box = card.getBoundingClientRect();
  if (box.top < innerHeight) filled.push([box.left, box.right, box.top, box.bottom]);
}
return [room.left, room.right, document.documentElement.scrollWidth, filled];
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_one_plan_fills_the_first_screen(chromium, single, width):
    """Below the verdict, cards span the page, down to the end of the screen."""
    show(chromium, single.as_uri(), width, "dark")
    left, right, wide, cards = chromium.execute_script(FIRST_SCREEN)
    assert wide <= width
    assert max(bottom for *_, bottom in cards) >= HEIGHT
    rows = {}
    for start, stop, top, _ in cards:
        rows.setdefault(round(top), []).append(stop - start)
    assert all(sum(filled) >= 0.9 * (right - left) for filled in rows.values())
    assert min(rows) < 0.6 * HEIGHT
    assert len(rows[min(rows)]) == {390: 1, 1280: 3}[width]
