// The words on a page that are hard to read: those with less contrast than WCAG's AA asks for.
(() => {
  const numbers = color => color.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = node => { const color = numbers(getComputedStyle(node).backgroundColor); return color[3] === 0 ? behind(node.parentElement) : color; };
  const poor = [], words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (words.nextNode()) {
    const node = words.currentNode.parentElement;
    if (!words.currentNode.data.trim() || !node.checkVisibility() || node.matches("script, style, option, .unseen")) continue;
    const [a, b] = [light(numbers(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(words.currentNode.data.trim() + " " + ratio.toFixed(2));
  }
  return poor;
})()
