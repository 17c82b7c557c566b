// The content of a message as JSON, text or hex.

const HEX_SHOWN = 4096;
const LINE = 16;
const JSON_TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

export function bytesOf({ text, base64 }) {
  if (base64 == null) return new TextEncoder().encode(text ?? "");
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** The ways in which a message can be read, the best first. */
export function decodings(message) {
  if (message.text == null) return ["hex"];
  return message.json ? ["json", "text", "hex"] : ["text", "hex"];
}

export function decode(message, way) {
  if (way === "json") return indent(message.text);
  return way === "text" ? message.text : hex(bytesOf(message));
}

/** JSON with line breaks. Tokens stay as they are: a number parsed and printed could be another. */
export function indent(json) {
  let depth = 0;
  let before = "";
  let out = "";
  const newLine = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of json.matchAll(JSON_TOKEN)) {
    const closes = token === "}" || token === "]";
    const opened = before === "{" || before === "[";
    if (closes) depth -= 1;
    if (closes ? !opened : opened || before === ",") out += newLine();
    out += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth += 1;
    before = token;
  }
  return out;
}

/** Offset, sixteen bytes, and what they are as characters. */
export function hex(bytes) {
  const lines = [];
  const shown = bytes.subarray(0, HEX_SHOWN);
  for (let at = 0; at < shown.length; at += LINE) lines.push(hexLine(shown.subarray(at, at + LINE), at));
  if (bytes.length > shown.length) lines.push(`… ${bytes.length - shown.length} more bytes`);
  return lines.join("\n");
}

function hexLine(bytes, at) {
  const digits = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  const characters = [...bytes]
    .map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "."))
    .join("");
  return `${at.toString(16).padStart(8, "0")}  ${digits.padEnd(LINE * 3 - 1)}  ${characters}`;
}

/** One line that shows what a message is about. */
export function preview(message, length = 160) {
  if (message.text != null) return message.text.slice(0, length).replace(/\s+/g, " ");
  const bytes = bytesOf(message).subarray(0, 24);
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}
