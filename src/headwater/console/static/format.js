// Numbers, sizes, ages and times as people read them. The exact value is always there as a title.

import { h } from "./dom.js";

const LOCALE = navigator.language;
const PLAIN = new Intl.NumberFormat(LOCALE);
const CLOCK = new Intl.DateTimeFormat(LOCALE, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat(LOCALE, { month: "short", day: "numeric" });
const EXACT = new Intl.DateTimeFormat(LOCALE, { dateStyle: "full", timeStyle: "long" });
const NOTHING = "–";

/** 12400 → "12.4 k": three digits that say something, and a unit. */
function scaled(value, base, units) {
  let step = 0;
  while (Math.abs(value) >= base && step < units.length - 1) {
    value /= base;
    step += 1;
    // 999 950 would be printed as "1000 k".
    if (Math.abs(value) >= base - 0.5 && step < units.length - 1) {
      value /= base;
      step += 1;
    }
  }
  const digits = step === 0 || Math.abs(value) >= 100 ? 0 : 1;
  return `${value.toFixed(digits)}${units[step] && " "}${units[step]}`;
}

export const count = (value) =>
  value == null
    ? NOTHING
    : value < 10_000
      ? PLAIN.format(value)
      : scaled(value, 1000, ["", "k", "M", "G", "T"]);

export const size = (value) => (value == null ? NOTHING : scaled(value, 1000, ["B", "kB", "MB", "GB", "TB"]));

export const rate = (value) => {
  if (value == null) return NOTHING;
  if (value > 0 && value < 10) return `${value.toFixed(1)}/s`;
  const text = scaled(value, 1000, ["", "k", "M", "G"]);
  return `${text}/s`;
};

export const sizeRate = (value) => (value == null ? NOTHING : `${size(value)}/s`);

export const exact = (value) => (value == null ? NOTHING : PLAIN.format(value));

export const milliseconds = (value) => (value == null ? NOTHING : `${value.toFixed(value < 10 ? 1 : 0)} ms`);

/** A part of a whole, from 0 to 1: "0.4 %", "38 %". */
export const share = (value) => {
  if (value == null) return NOTHING;
  const percent = value * 100;
  return `${percent >= 0.05 && percent < 9.95 ? percent.toFixed(1) : Math.round(percent)} %`;
};

/** Seconds of something that is often short: "12 ms", "3.4 s", "12 min". */
export const span = (seconds) =>
  seconds == null
    ? NOTHING
    : seconds < 1
      ? milliseconds(seconds * 1000)
      : seconds < 60
        ? `${seconds.toFixed(1)} s`
        : duration(seconds);

/** Seconds as the one or two units that matter: "4 s", "12 min", "3 h 20 min", "9 d". */
export function duration(seconds) {
  if (seconds == null) return NOTHING;
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

const date = (micros) => new Date(micros / 1000);

const seconds = (micros) => (Date.now() - micros / 1000) / 1000;

/** Local time of day, with the day when it is not today; exact on hover. */
export function time(micros) {
  if (micros == null) return NOTHING;
  const when = date(micros);
  const today = when.toDateString() === new Date().toDateString();
  const text = today ? CLOCK.format(when) : `${DAY.format(when)}, ${CLOCK.format(when)}`;
  return h("time", { datetime: when.toISOString(), title: exactTime(micros) }, text);
}

/** How long ago, exact on hover. */
export function age(micros, suffix = "") {
  if (micros == null) return NOTHING;
  return h(
    "time",
    { datetime: date(micros).toISOString(), title: exactTime(micros) },
    duration(seconds(micros)),
    suffix,
  );
}

export const ago = (micros) => age(micros, " ago");

export const exactTime = (micros) => `${EXACT.format(date(micros))} · ${micros} µs`;

/** A readable number whose exact value is its title. */
export const number = (value, format = count, unit = "") =>
  h("span", { class: "number", title: value == null ? null : `${exact(value)}${unit}` }, format(value));

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;
