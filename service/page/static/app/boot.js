/** Load the modules of the first view once the frame of the page is painted: loaded with the frame, they delay it. */

const FIRST = [
  "app/api.js", "app/catalog.js", "app/dom.js", "app/format.js", "app/keys.js", "app/pulse.js", "app/state.js",
  "app/latest.js", "query/body.js", "query/boosts.js", "query/caps.js", "query/condition.js",
  "query/controls.js", "query/filters.js", "query/history.js", "query/panel.js", "query/pins.js", "query/search.js", "query/user.js", "try/answer.js",
  "try/plan.js", "try/request.js", "try/results.js", "try/view.js", "try/why.js",
];

requestAnimationFrame(() => setTimeout(() => {
  for (const path of FIRST) {
    const href = new URL(`../${path}`, import.meta.url).href;
    document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href }));
  }
  import("./main.js");
}));
