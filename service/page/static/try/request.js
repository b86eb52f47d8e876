/** The request to copy, as curl and as Python. A key is never part of it: both read $TURRET_KEY. */

import { settings } from "../app/api.js";
import { button, h } from "../app/dom.js";
import { state } from "../app/state.js";
import { bodyOf, callOf } from "../query/body.js";

const address = () => new URL(callOf(state), location.href).href;

/** The request for a shell. */
export function asCurl(body) {
  const json = JSON.stringify(body).replaceAll("'", "'\\''");
  const key = settings.keys_required ? '  -H "Authorization: Bearer $TURRET_KEY" \\\n' : "";
  return `curl -X POST '${address().replaceAll("'", "%27")}' \\\n${key}  -H 'Content-Type: application/json' \\\n  -d '${json}'`;
}

/** The request for Python, with its standard library only. */
export function asPython(body) {
  const key = settings.keys_required ? ', "Authorization": f"Bearer {os.environ[\'TURRET_KEY\']}"' : "";
  return `import json
${settings.keys_required ? "import os\n" : ""}from urllib.request import Request, urlopen

body = ${literal(body)}
headers = {"Content-Type": "application/json"${key}}
request = Request(${JSON.stringify(address())}, json.dumps(body).encode(), headers)
with urlopen(request) as response:
    answer = json.load(response)
for item in answer["items"]:
    print(item["id"], item["score"])`;
}

function literal(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}

export function createRequest() {
  const status = h("span", { class: "hint", role: "status" });
  const blocks = [["curl", asCurl], ["Python", asPython]].map(([name, write]) => {
    const code = h("code", { id: `request-${name.toLowerCase()}` });
    const copy = async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        status.textContent = `Copied for ${name}.`;
      } catch {
        getSelection().selectAllChildren(code);
        status.textContent = "Selected; copy it with the keyboard.";
      }
    };
    return { code, write, element: h("div", { class: "code" },
      h("div", { class: "row" }, h("h3", {}, name), button("Copy", copy, { class: "quiet", "aria-label": `Copy the request for ${name}` })),
      h("pre", { tabindex: "0", role: "region", "aria-label": `The request for ${name}` }, code)) };
  });
  const update = () => {
    for (const { code, write } of blocks) code.textContent = write(bodyOf(state));
  };
  return {
    element: h("details", { id: "request", class: "fold" }, h("summary", {}, "The request"), blocks.map(({ element }) => element), status),
    update,
  };
}
