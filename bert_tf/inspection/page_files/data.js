"use strict";
// Reading the data of the page and making elements. All text becomes text nodes, never markup.

const get = id => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name === "className" ? "class" : name, value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

// Characters that show nothing, or that change the order of others, are shown by their numbers:
// controls, formats such as those of bidirectional text, separators of lines, fillers, and selectors
// of variants. Joiners between emoji show one emoji, and U+FE0F after a sign its coloured form.
const JOINED = "(?<=\\p{Extended_Pictographic}[\\ufe0f\\p{Emoji_Modifier}]?)\\u200d(?=\\p{Extended_Pictographic})";
const COLOURED = "(?<=\\p{Extended_Pictographic})\\ufe0f|(?<=[0-9#*])\\ufe0f(?=\\u20e3)";
const HIDDEN = new RegExp(`(?!\\n)(?!${JOINED})(?!${COLOURED})[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}\\p{Default_Ignorable_Code_Point}]`, "gu");
const visible = text => text.replace(HIDDEN, c => `‹U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
// Text from right to left is isolated, so that numbers after it stay on its right.
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const short = (text, most = 16) => {
  const points = Array.from(visible(text).replaceAll("\n", "⏎"));
  const shown = points.length > most ? points.slice(0, most - 1).join("") + "…" : points.join("");
  return RIGHT_TO_LEFT.test(shown) ? `\u2068${shown}\u2069` : shown;
};
const numbered = (text, place, most) => `${short(text, most)} (${place})`;
const signed = (value, digits = 3) => {
  const size = Math.abs(value).toFixed(digits);
  return (Number(size) === 0 ? "±" : value < 0 ? "−" : "+") + size;
};
const decimal = (value, digits) => value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", "−");
const percent = value => `${(100 * value).toFixed(value < 0.0995 ? 2 : 1)} %`;
const share = value => value === null ? "" : value < 0.0005 && value > 0 ? "<0.001" : value.toFixed(3);

async function inflated(text) {
  const characters = atob(text), packed = new Uint8Array(characters.length);
  for (let at = 0; at < packed.length; at++) packed[at] = characters.charCodeAt(at);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Weights are sent as bytes q with weight (q / 255)², so that small weights keep their digits.
const WEIGHTS = Float32Array.from({length: 256}, (_, q) => (q / 255) ** 2);

const whenIdle = globalThis.requestIdleCallback ?? setTimeout;  // Safari has no idle callbacks

class Inspected {
  // What the server or the file says about one text.
  constructor(data) {
    Object.assign(this, data);
    this.length = data.pieces.length;
    this.points = data.texts.map(text => Array.from(text));  // offsets count code points
    this.layerBytes = new Map();
    this.weightsOf = new Map();
  }

  bytesOf(layer) {
    if (!this.layerBytes.has(layer)) this.layerBytes.set(layer, inflated(this.attentions[layer]));
    return this.layerBytes.get(layer);
  }

  // Unpacks the other layers while the page has nothing else to do, so that a change is immediate.
  async unpackAll() {
    for (let layer = 0; layer < this.layers; layer++) {
      await new Promise(resolve => whenIdle(resolve));
      await this.bytesOf(layer);
    }
  }

  rolloutBytes(layer) {
    const key = `rollout ${layer}`;
    if (!this.layerBytes.has(key)) this.layerBytes.set(key, inflated(this.rollout[layer]));
    return this.layerBytes.get(key);
  }

  // The weights of a head, or the mean over the heads for head -1: [T * T], from a row to a column.
  async weights(layer, head) {
    const key = `${layer} ${head}`;
    if (this.weightsOf.has(key)) return this.weightsOf.get(key);
    const bytes = await this.bytesOf(layer), size = this.length ** 2;
    const heads = head < 0 ? this.kept[layer] : [head], found = new Float32Array(size);
    for (const one of heads) {
      const part = bytes.subarray(one * size, (one + 1) * size);
      for (let at = 0; at < size; at++) found[at] += WEIGHTS[part[at]];
    }
    if (heads.length > 1) for (let at = 0; at < size; at++) found[at] /= heads.length;
    if (this.weightsOf.size > 24) this.weightsOf.clear();  // each is a megabyte for 512 pieces
    this.weightsOf.set(key, found);
    return found;
  }

  async rolloutWeights(layer) {
    const bytes = await this.rolloutBytes(layer), found = new Float32Array(bytes.length);
    for (let at = 0; at < bytes.length; at++) found[at] = WEIGHTS[bytes[at]];
    return found;
  }

  isSpecial(place) { return this.textOf[place] < 0; }

  fact(place) {
    const piece = `Piece ${place}: ${short(this.pieces[place], 40)}, id ${this.ids[place]}`;
    if (this.isSpecial(place)) return `${piece}, a special token`;
    const text = this.texts.length > 1 ? ` of text ${this.textOf[place] + 1}` : "";
    return `${piece}, characters ${this.starts[place]} to ${this.ends[place]}${text}, word ${this.words[place]}`;
  }

  // The k best at a place of a table of labels and values, as pairs.
  best(table, at) {
    return Array.from({length: table.k}, (_, rank) => {
      const index = at * table.k + rank;
      return [table.labels ? table.labels[table.numbers[index]] : table.numbers[index], table.values[index]];
    });
  }
}
