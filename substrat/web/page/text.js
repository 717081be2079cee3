// @ts-check
// Texts as the page says them. Pure.
//
// Agents are hostile: `visible` writes out what acts, hides or reorders, as `substrat/visible.py` does for terminals.

const ACTS = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\ufff0-\ufff8]/gu;
const DRAWN = /[\n\t\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2]/; // format characters that have a glyph
const JOINED = /[\p{L}\p{M}\p{So}\p{Sk}\p{Emoji}]/u; // scripts that join their letters, and emoji, begin at U+0590

/** @param {string} text */
export function visible(text) {
  if (!/[^\n\t\x20-\x7e]/.test(text)) return text;
  return text.replace(ACTS, (sign, at) =>
    DRAWN.test(sign) || works(sign, text, at) ? sign : escaped(sign.codePointAt(0)),
  );
}

/** Say whether a joiner or a variation selector does its ordinary work between its neighbours. */
function works(sign, text, at) {
  const joins = (letter) => letter >= "\u0590" && JOINED.test(letter);
  const before = text.slice(Math.max(0, at - 2), at).match(/.$/u)?.[0] ?? "",
    after = text.slice(at + 1, at + 3).match(/^./u)?.[0] ?? "";
  if (/[\u200c\u200d]/.test(sign)) return (joins(before) || before === "\ufe0f") && joins(after);
  return /[\ufe00-\ufe0f]/.test(sign) && (joins(before) || /[0-9#*©®]/.test(before));
}

/** @param {number} code */
function escaped(code) {
  const digits = code.toString(16);
  return code < 0x100
    ? `\\x${digits.padStart(2, "0")}`
    : code < 0x10000
      ? `\\u${digits.padStart(4, "0")}`
      : `\\U${digits.padStart(8, "0")}`;
}

/** @type {(text: unknown, most?: number) => string} */
export const oneLine = (text, most = 400) =>
  visible(
    String(text ?? "")
      .slice(0, most)
      .replace(/\s+/g, " ")
      .trim(),
  );

/** @param {number} characters */
export function size(characters) {
  return characters < 10_000
    ? `${characters} characters`
    : characters < 1e6
      ? `${Math.round(characters / 1000)} k characters`
      : `${(characters / 1e6).toFixed(1)} M characters`;
}

/** @param {number} count */
export function tokens(count) {
  if (count < 10_000) return String(count);
  const [unit, name] = count < 999_500 ? [1e3, "k"] : count < 999.5e6 ? [1e6, "M"] : [1e9, "G"];
  return `${(count / unit).toFixed(count < 10 * unit ? 1 : 0)}${name}`;
}

/** @param {string} stamp */
export function age(stamp) {
  const seconds = Math.max(0, (Date.now() - Date.parse(stamp)) / 1000);
  if (!(seconds >= 0)) return "";
  /** @type {[number, string][]} */
  const units = [
    [86_400, "d"],
    [3600, "h"],
    [60, "m"],
  ];
  for (const [unit, name] of units)
    if (seconds >= unit) return `${Math.floor(seconds / unit)}${name}`;
  return "now";
}

/** @type {(stamp: string | number | null | undefined) => string} */
export const moment = (stamp) => (stamp ? new Date(stamp).toLocaleString("sv-SE") : ""); // 2026-01-31 13:07:00, local
export const clock = (stamp) => moment(stamp).slice(11);

// The daemon's sentences name times as 2026-01-31T12:07:00.000Z; people read 13:07, on another day with the date.
export const withLocalTimes = (text) =>
  text.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g, (stamp) => {
    const [day, time] = moment(stamp).slice(0, 16).split(" ");
    return day === moment(Date.now()).slice(0, 10) ? time : `${day} ${time}`;
  });

/** @type {(count: number, one: string, more?: string) => string} */
export const plural = (count, one, more = `${one}s`) => `${count} ${count === 1 ? one : more}`;

/** Cut a text, and not within a character. */
export function cut(text, most) {
  const is_half = /[\ud800-\udbff]/.test(text[most - 1]);
  return `${text.slice(0, is_half ? most - 1 : most)}…`;
}
