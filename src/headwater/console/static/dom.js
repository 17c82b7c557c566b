// Descriptions of elements, and a patch that makes the page look like them.
//
// A page describes itself anew on every change; `patch` touches only what differs. Elements with the
// same key stay the same elements, so scroll, focus and selection survive live updates.
//
//   h("a", {href: "/topics", class: "quiet"}, "Topics")
//
// Properties: `key` names an element among its siblings, `on…` are listeners, `paint` is called with
// the element after each patch (charts draw themselves there), everything else is an attribute.
// `value` and `checked` are set once, when the element is made: afterwards they are the user's.

const SVG = "http://www.w3.org/2000/svg";
// Attribute → the property it starts with. A form that is reset goes back to the defaults.
const SET_ONCE = { value: "value", checked: "defaultChecked", selected: "selected", open: "open" };

export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: flatten(children) };
}

/** Make the children of `parent` look like the described ones. */
export function patch(parent, ...described) {
  const wanted = flatten(described);
  const keyed = keyedChildren(parent, wanted);
  let at = parent.firstChild;
  for (const each of wanted) {
    const found = fitting(at, each, keyed);
    const node = found ?? create(each, parent);
    if (found && node !== at && isInUse(node)) at = clearTheWay(at, node);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    if (found) update(node, each);
  }
  removeFrom(at);
}

// To move an element takes its focus and selection away, so its siblings move instead.
function clearTheWay(at, node) {
  while (at !== node) {
    const next = at.nextSibling;
    node.parentNode.append(at);
    at = next;
  }
  return node;
}

function isInUse(node) {
  const selection = getSelection();
  return (
    node.contains(document.activeElement) || (!selection.isCollapsed && selection.containsNode(node, true))
  );
}

function flatten(children) {
  return children.flat(Infinity).filter((child) => child != null && child !== false && child !== "");
}

/** The keyed children that stay. The others go first: then those that stay need not be moved. */
function keyedChildren(parent, wanted) {
  const keys = new Set(wanted.map((each) => String(each.props?.key)));
  const keyed = new Map();
  for (const child of [...parent.children]) {
    if (child.key === undefined) continue;
    if (keys.has(child.key)) keyed.set(child.key, child);
    else child.remove();
  }
  return keyed;
}

/** The existing node that may become the described one: by key, or by place when it has none. */
function fitting(at, described, keyed) {
  if (typeof described !== "object") return at?.nodeType === Node.TEXT_NODE ? at : null;
  const key = described.props.key;
  const node = key === undefined ? at : keyed.get(String(key));
  if (node?.nodeType !== Node.ELEMENT_NODE || node.localName !== described.tag) return null;
  return key === undefined && node.key !== undefined ? null : node;
}

function create(described, parent) {
  if (typeof described !== "object") return document.createTextNode(described);
  const inSvg = described.tag === "svg" || parent.namespaceURI === SVG;
  const node = inSvg ? document.createElementNS(SVG, described.tag) : document.createElement(described.tag);
  if (described.props.key !== undefined) node.key = String(described.props.key);
  node.props = {};
  update(node, described);
  for (const [name, value] of Object.entries(described.props)) {
    if (name in SET_ONCE) node[SET_ONCE[name]] = value;
  }
  return node;
}

function update(node, described) {
  if (typeof described !== "object") {
    // A selection inside the text would be lost by writing the same text again.
    if (node.data !== String(described)) node.data = described;
    return;
  }
  setProps(node, described.props);
  if (!described.props.paint) patch(node, described.children);
  else described.props.paint(node);
}

function setProps(node, props) {
  for (const name of Object.keys(node.props)) if (!(name in props)) setProp(node, name, null);
  for (const [name, value] of Object.entries(props)) {
    if (node.props[name] !== value) setProp(node, name, value);
  }
  node.props = props;
}

function setProp(node, name, value) {
  if (name === "key" || name === "paint" || name in SET_ONCE) return;
  if (name.startsWith("on")) node[name.toLowerCase()] = value;
  else if (value == null || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}

function removeFrom(node) {
  while (node) {
    const next = node.nextSibling;
    node.remove();
    node = next;
  }
}
