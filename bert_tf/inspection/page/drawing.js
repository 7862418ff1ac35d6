// Canvases: lines between pieces, matrices, small matrices. Only what is in view is drawn.

const ROW = 22, LABEL = 132, LEVELS = 12;

// Colours of the style sheet as the canvas needs them; they change with light and dark.
function colour(name) {
  const probe = element("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function rgb(name) {
  const context = element("canvas").getContext("2d", {willReadFrequently: true});
  context.fillStyle = colour(name);
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}

function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

function measured(name, draw) {
  const start = performance.now();
  draw();
  performance.measure(name, {start});
}

// The lines of several heads, as BertViz draws them. `layers` holds {weights, tint} for each head.
function drawLines(canvas, box, data, layers, allows, least, chosen) {
  const width = Math.max(box.clientWidth, 280), height = box.clientHeight, top = box.scrollTop;
  const context = sized(canvas, width, height), label = Math.min(LABEL, width * 0.34);
  const first = Math.max(0, Math.floor(top / ROW)), last = Math.min(data.length - 1, Math.ceil((top + height) / ROW));
  const left = label, right = width - label, y = place => place * ROW + ROW / 2 - top;
  context.clearRect(0, 0, width, height);
  for (const {weights, tint} of layers) {
    const paths = Array.from({length: LEVELS}, () => new Path2D());
    const used = new Array(LEVELS).fill(false);
    for (let from = 0; from < data.length; from++) {
      if (chosen >= 0 && from !== chosen) continue;
      for (let to = 0; to < data.length; to++) {
        const weight = weights[from * data.length + to];
        if (weight < least || (from < first && to < first) || (from > last && to > last) || !allows(from, to)) continue;
        const level = Math.min(LEVELS - 1, Math.floor(Math.sqrt(weight) * LEVELS));
        paths[level].moveTo(left, y(from));
        paths[level].lineTo(right, y(to));
        used[level] = true;
      }
    }
    context.strokeStyle = tint;
    paths.forEach((path, level) => {
      if (!used[level]) return;
      context.globalAlpha = 0.08 + 0.92 * (level + 0.5) / LEVELS;
      context.lineWidth = 0.7 + 2 * level / LEVELS;
      context.stroke(path);
    });
  }
  context.globalAlpha = 1;
  context.font = "13px system-ui, sans-serif";
  context.textBaseline = "middle";
  const normal = colour("text"), quiet = colour("quiet"), accent = colour("accent"), back = colour("raised");
  for (let place = first; place <= last; place++) {
    if (place === chosen) {
      context.fillStyle = back;
      context.fillRect(0, y(place) - ROW / 2, label - 3, ROW);
    }
    context.fillStyle = place === chosen ? accent : data.isSpecial(place) ? quiet : normal;
    const text = short(data.pieces[place], label < 110 ? 11 : 15);
    context.textAlign = "right";
    context.fillText(text, left - 5, y(place));
    context.textAlign = "left";
    context.fillStyle = data.isSpecial(place) ? quiet : normal;
    context.fillText(text, right + 5, y(place));
  }
}

// A picture [T, T] of weights, one pixel for each, light to dark.
function picture(weights, length, allows, tint, empty) {
  const canvas = element("canvas");
  canvas.width = canvas.height = length;
  const context = canvas.getContext("2d"), image = context.createImageData(length, length);
  for (let at = 0; at < length * length; at++) {
    const is = allows(Math.floor(at / length), at % length) ? Math.sqrt(weights[at]) : 0;
    for (let channel = 0; channel < 3; channel++)
      image.data[4 * at + channel] = empty[channel] + (tint[channel] - empty[channel]) * is;
    image.data[4 * at + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

const cellSize = (length, width) => Math.max(2, Math.min(20, Math.floor((width - LABEL) / length)));

function drawMatrix(canvas, width, data, weights, allows, cursor) {
  const cell = cellSize(data.length, width), named = cell >= 11;
  const edge = named ? 110 : 4, size = cell * data.length;
  const context = sized(canvas, edge + size + 4, edge + size + 4);
  context.imageSmoothingEnabled = false;
  context.drawImage(picture(weights, data.length, allows, rgb("more"), rgb("zero")), edge, edge, size, size);
  if (named) {
    context.font = `${Math.min(13, cell - 1)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    const normal = colour("text"), quiet = colour("quiet");
    for (let place = 0; place < data.length; place++) {
      context.fillStyle = data.isSpecial(place) ? quiet : normal;
      context.textAlign = "right";
      context.fillText(short(data.pieces[place], 14), edge - 5, edge + (place + 0.5) * cell);
      context.save();
      context.translate(edge + (place + 0.5) * cell, edge - 5);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(short(data.pieces[place], 14), 0, 0);
      context.restore();
    }
  }
  if (cursor) {
    context.strokeStyle = colour("less");
    context.lineWidth = 2;
    context.strokeRect(edge + cursor.to * cell - 1, edge + cursor.from * cell - 1, cell + 2, cell + 2);
  }
  return {cell, edge};
}

const THUMB = 44;

// The largest weight of each small square is shown, so that a thin line stays visible.
function drawThumb(canvas, bytes, length, tint, empty) {
  const size = Math.min(length, THUMB), image = new ImageData(size, size), most = new Uint8Array(size * size);
  for (let from = 0; from < length; from++) {
    const row = Math.floor(from * size / length) * size;
    for (let to = 0; to < length; to++) {
      const at = row + Math.floor(to * size / length), value = bytes[from * length + to];
      if (value > most[at]) most[at] = value;
    }
  }
  for (let at = 0; at < size * size; at++) {
    for (let channel = 0; channel < 3; channel++)
      image.data[4 * at + channel] = empty[channel] + (tint[channel] - empty[channel]) * most[at] / 255;
    image.data[4 * at + 3] = 255;
  }
  canvas.width = canvas.height = size;
  canvas.style.width = canvas.style.height = `${THUMB}px`;
  canvas.style.imageRendering = "pixelated";
  canvas.getContext("2d").putImageData(image, 0, 0);
}
