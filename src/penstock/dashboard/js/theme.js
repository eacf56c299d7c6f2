// Runs before the first paint, so that a page in the other theme never flashes up. A plain script: modules run late.
(() => {
  const chosen = localStorage.getItem("penstock-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
