// The page at /api/docs: the description of the API, made readable.

const DEEPEST = 4;

function element(name, content, ...children) {
  const made = document.createElement(name);
  if (content) made.textContent = content;
  made.append(...children);
  return made;
}

function resolve(api, schema) {
  if (!schema?.$ref) return schema ?? {};
  return schema.$ref
    .slice(2)
    .split("/")
    .reduce((place, step) => place[step], api);
}

/** An example of what a schema describes, with the kinds of values in place of values. */
function outline(api, given, depth = 0) {
  const schema = resolve(api, given);
  const options = schema.anyOf ?? schema.oneOf;
  if (options) return outline(api, options.find((each) => each.type !== "null") ?? options[0], depth);
  if (schema.enum) return schema.enum.join(" | ");
  if (depth > DEEPEST) return "…";
  if (schema.type === "array") return [outline(api, schema.items, depth + 1)];
  if (schema.properties) {
    const members = Object.entries(schema.properties);
    return Object.fromEntries(members.map(([name, each]) => [name, outline(api, each, depth + 1)]));
  }
  if (schema.type === "object")
    return schema.additionalProperties ? { "…": outline(api, schema.additionalProperties, depth + 1) } : {};
  return schema.const ?? schema.type ?? "any";
}

function parameters(operation) {
  const table = element("table");
  for (const each of operation.parameters ?? []) {
    const note = each.description ?? each.schema?.description ?? "";
    const kind = each.schema?.type ?? each.schema?.anyOf?.[0]?.type ?? "text";
    const name = element("td", "", element("code", each.name));
    table.append(element("tr", "", name, element("td", `${each.in}, ${kind}`), element("td", note)));
  }
  return table;
}

function body(api, title, content) {
  const [kind, described] = Object.entries(content ?? {})[0] ?? [];
  if (!kind) return [];
  const shown = kind === "application/json" ? JSON.stringify(outline(api, described.schema), null, 2) : kind;
  return [element("p", title), element("pre", shown)];
}

function route(api, method, path, operation) {
  const [status, success] = Object.entries(operation.responses).find(([code]) => code.startsWith("2")) ?? [];
  const inner = element("div", "", element("p", operation.description ?? ""), parameters(operation));
  inner.className = "inner";
  inner.append(...body(api, "Takes", operation.requestBody?.content));
  inner.append(...body(api, `Answers with ${status ?? ""}`, success?.content));
  return element("details", "", element("summary", "", element("b", method.toUpperCase()), path), inner);
}

async function show() {
  const page = document.getElementById("api");
  const answer = await fetch("/api/v1/openapi.json");
  const api = await answer.json();
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const name = operation.tags?.[0] ?? "other";
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(route(api, method, path, operation));
    }
  }
  for (const [name, routes] of groups) page.append(element("h2", name), ...routes);
}

show();
