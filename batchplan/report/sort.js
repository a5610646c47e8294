for (const table of document.querySelectorAll('table.sortable')) {
  const body = table.tBodies[0];
  table.tHead.addEventListener('click', event => {
    const head = event.target.closest('th');
    if (!head) return;
    const down = head.getAttribute('aria-sort') !== 'descending';
    for (const other of head.parentElement.cells) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    const key = row => {
      const text = row.cells[head.cellIndex].textContent.replace(/,/g, '');
      return isNaN(parseFloat(text)) ? text : parseFloat(text);
    };
    const order = (a, b) => (key(a) > key(b) ? 1 : key(a) < key(b) ? -1 : 0);
    const rows = [...body.rows].sort((a, b) => (down ? order(b, a) : order(a, b)));
    body.append(...rows);
  });
}
