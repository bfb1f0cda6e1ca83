// The player: boards are decoded when they are first shown (see player.py for the encoding).
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("player-data").textContent);
  const {layout, runs} = data;
  const cells = layout.width * layout.height;
  const by = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const NOTHING = 255, LEVELS = 254;
  const sides = ["left", "right"];
  const state = {puzzle: data.start.puzzle, left: data.start.left, right: data.start.right, loop: 0, timer: null};
  let ready = null;  // what is shown: decoded puzzle and runs
  let asked = 0;     // choices made, so that a slow answer to an old one is dropped

  async function inflate(text) {
    if (typeof DecompressionStream === "undefined") throw new Error("This browser is too old for the player.");
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }
  const cache = new Map();
  function bytesOf(text) {
    if (!cache.has(text)) cache.set(text, inflate(text));
    return cache.get(text);
  }

  function boardsOf(bytes, run, puzzle, first) {
    const boards = [first];
    const start = puzzle * run.loops * cells;
    for (let loop = 0; loop < run.frames[puzzle]; loop++) {
      const before = boards[loop];
      const now = new Uint8Array(cells);
      for (let i = 0; i < cells; i++) now[i] = before[i] ^ bytes[start + loop * cells + i];
      boards.push(now);
    }
    return boards;
  }
  async function seriesOf(series, run, puzzle) {
    if (!series) return null;
    const bytes = await bytesOf(series.data);
    const step = (series.high - series.low) / LEVELS;
    const levels = bytes.subarray(puzzle * run.updates, (puzzle + 1) * run.updates);
    return Array.from(levels, (level) => level === NOTHING ? NaN : series.low + level * step);
  }
  async function load(index, puzzle, first) {
    const run = runs[index];
    const [boards, eta, balance] = await Promise.all([
      bytesOf(run.boards), seriesOf(run.eta, run, puzzle), seriesOf(run.balance, run, puzzle)]);
    return {run, boards: boardsOf(boards, run, puzzle, first), eta, balance, perLoop: run.updates / run.loops,
            correct: run.correct[puzzle]};
  }

  async function choose() {
    const mine = ++asked;
    stop();
    try {
      const [inputs, labels] = await Promise.all([bytesOf(data.inputs), bytesOf(data.labels)]);
      const here = (all) => all.subarray(state.puzzle * cells, (state.puzzle + 1) * cells);
      const first = here(inputs).slice();
      const [left, right] = await Promise.all(sides.map((side) => load(state[side], state.puzzle, first)));
      if (mine !== asked) return;
      ready = {first, label: here(labels), left, right, loops: Math.max(left.run.loops, right.run.loops)};
    } catch (error) {
      by("status").textContent = error.message;
      return;
    }
    by("loop").max = ready.loops;
    state.loop = Math.min(state.loop, ready.loops);
    nameChoices();
    drawChart("eta", 1);
    drawChart("balance", 0);
    show();
  }

  // Boards
  function element(name, attributes, parent) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (parent) parent.append(made);
    return made;
  }
  const squares = {};
  function makeBoard(side) {
    const svg = by(`${side}-board`);
    const {width, height, box} = layout;
    svg.setAttribute("viewBox", `-0.05 -0.05 ${width + 0.1} ${height + 0.1}`);
    svg.classList.add(layout.kind);
    squares[side] = Array.from({length: cells}, (_, i) => {
      const x = i % width, y = Math.floor(i / width);
      const group = element("g", {}, svg);
      element("rect", {class: "back", x, y, width: 1, height: 1}, group);
      const text = element("text", {x: x + 0.5, y: y + 0.52}, group);
      element("path", {class: "strike", d: `M${x + 0.12} ${y + 0.88}L${x + 0.88} ${y + 0.12}`}, group);
      element("rect", {class: "ring", x: x + 0.07, y: y + 0.07, width: 0.86, height: 0.86}, group);
      return {group, text};
    });
    let lines = `M0 0H${width}V${height}H0Z`;
    if (box) {
      for (let y = box[0]; y < height; y += box[0]) lines += `M0 ${y}H${width}`;
      for (let x = box[1]; x < width; x += box[1]) lines += `M${x} 0V${height}`;
    }
    element("path", {class: "frame", d: lines}, svg);
  }
  const symbol = (token) => layout.symbols[token] ?? "?";
  const isGiven = (i) => layout.open === null ? ready.first[i] === ready.label[i] : ready.first[i] !== layout.open;

  function marks(shown, loop) {
    const at = Math.min(loop, shown.boards.length - 1);
    const board = shown.boards[at];
    const found = {board, at, wrong: 0, changed: 0, open: 0, classes: []};
    for (let i = 0; i < cells; i++) {
      const classes = [];
      const token = board[i];
      if (token === layout.wall) classes.push("wall");
      else if (isGiven(i)) classes.push("given");
      if (!isGiven(i)) found.open++;
      if (at > 0 && token !== ready.label[i]) { classes.push("wrong"); found.wrong++; }
      if (at > 0 && loop === at && token !== shown.boards[at - 1][i]) { classes.push("changed"); found.changed++; }
      found.classes.push(classes.join(" "));
    }
    return found;
  }
  function drawBoard(side, found) {
    squares[side].forEach(({group, text}, i) => {
      if (group.getAttribute("class") !== found.classes[i]) group.setAttribute("class", found.classes[i]);
      const sign = symbol(found.board[i]);
      if (text.textContent !== sign) text.textContent = sign;
    });
  }
  function asText(board) {
    const blank = layout.kind === "maze" ? (t) => (t === layout.wall ? "#" : symbol(t) || " ") : (t) => symbol(t) || ".";
    const rows = [];
    for (let y = 0; y < layout.height; y++) {
      let row = "";
      for (let x = 0; x < layout.width; x++) {
        row += blank(board[y * layout.width + x]);
        if (layout.box && (x + 1) % layout.box[1] === 0 && x + 1 < layout.width) row += "|";
      }
      rows.push(row);
      if (layout.box && (y + 1) % layout.box[0] === 0 && y + 1 < layout.height) {
        rows.push(row.replace(/[^|]/g, "-").replace(/\|/g, "+"));
      }
    }
    return rows.join("\n");
  }

  // Charts: both runs over the same axis of loops, however many updates each makes in one.
  function drawChart(kind, level) {
    const svg = by(`${kind}-chart`);
    svg.replaceChildren();
    const series = sides.map((side) => ready[side][kind]);
    const known = series.flatMap((values) => values ?? []).filter((value) => Number.isFinite(value));
    const high = known.length ? Math.max(...known, level) : level + 1;
    const low = known.length ? Math.min(...known, level) : level - 1;
    const room = (high - low || 0.2) * 0.08;
    const top = high + room, bottom = low - room;
    const y = (value) => (top - value) / (top - bottom) * 100;
    by(`${kind}-high`).textContent = known.length ? high.toFixed(2) : "";
    by(`${kind}-low`).textContent = known.length ? low.toFixed(2) : "";
    svg.setAttribute("viewBox", `0 0 ${ready.loops} 100`);
    element("rect", {class: "now", x: 0, y: 0, width: 0, height: 100}, svg);
    element("path", {class: "level", d: `M0 ${y(level)}H${ready.loops}`}, svg);
    sides.forEach((side, s) => {
      let path = "", down = false;
      (series[s] ?? []).forEach((value, k) => {
        if (!Number.isFinite(value)) return;  // between refreshes nothing is measured: the line goes on
        path += `${down ? "L" : "M"}${((k + 1) / ready[side].perLoop).toFixed(3)} ${y(value).toFixed(2)}`;
        down = true;
      });
      if (path) element("path", {class: side, d: path}, svg);
    });
    element("path", {class: "cursor", d: ""}, svg);
    const said = sides.map((side, s) => {
      const values = (series[s] ?? []).filter((value) => Number.isFinite(value));
      if (!values.length) return `${ready[side].run.label}: not measured`;
      const mean = values.reduce((a, b) => a + b) / values.length;
      return `${ready[side].run.label}: ${Math.min(...values).toFixed(2)} to ${Math.max(...values).toFixed(2)}, ` +
        `mean ${mean.toFixed(2)}, last ${values.at(-1).toFixed(2)}`;
    });
    svg.setAttribute("aria-label", `${kind} by update. ${said.join("; ")}.`);
  }
  function moveCursor() {
    for (const kind of ["eta", "balance"]) {
      const svg = by(`${kind}-chart`);
      const now = svg.querySelector(".now");
      now.setAttribute("x", Math.max(0, state.loop - 1));
      now.setAttribute("width", Math.min(1, state.loop));
      svg.querySelector(".cursor").setAttribute("d", `M${state.loop} 0V100`);
    }
  }
  function inLoop(shown, kind, loop) {
    if (!shown[kind] || loop < 1 || loop > shown.boards.length - 1) return null;
    const from = Math.round((loop - 1) * shown.perLoop), to = Math.max(from + 1, Math.round(loop * shown.perLoop));
    const values = shown[kind].slice(from, to).filter((value) => Number.isFinite(value));
    return values.length ? values.reduce((a, b) => a + b) / values.length : null;
  }

  function describe(shown, found) {
    if (state.loop === 0) return `the puzzle, ${found.open} open cells`;
    const parts = [];
    const last = shown.boards.length - 1;
    if (state.loop > last) parts.push(`stopped after loop ${last}`);
    parts.push(found.wrong === 0 ? "solved" : `${found.wrong} ${found.wrong === 1 ? "cell" : "cells"} wrong`);
    parts.push(`${found.changed} changed`);
    const eta = inLoop(shown, "eta", state.loop), balance = inLoop(shown, "balance", state.loop);
    if (eta !== null) parts.push(`mean eta ${eta.toFixed(2)}`);
    if (balance !== null) parts.push(`mean balance ${balance.toFixed(2)}`);
    return parts.join(", ");
  }
  function show() {
    if (!ready) return;
    const said = [];
    for (const side of sides) {
      const shown = ready[side];
      const found = marks(shown, state.loop);
      drawBoard(side, found);
      const words = describe(shown, found);
      by(`${side}-name`).textContent = shown.run.label;
      by(`${side}-facts`).textContent = words;
      by(`${side}-text`).textContent = `${shown.run.label}\n${asText(found.board)}`;
      by(`${side}-board`).setAttribute("aria-label", `Board of ${shown.run.label} after loop ${state.loop}: ${words}.`);
      said.push(`${shown.run.label}: ${words}.`);
    }
    moveCursor();
    by("loop").value = state.loop;
    by("loop").setAttribute("aria-valuetext", `loop ${state.loop} of ${ready.loops}`);
    by("where").textContent = `loop ${state.loop} of ${ready.loops}`;
    by("status").textContent = `Loop ${state.loop} of ${ready.loops}. ${said.join(" ")}`;
    const atStart = state.loop === 0, atEnd = state.loop === ready.loops;
    for (const [id, off] of [["first", atStart], ["back", atStart], ["forward", atEnd], ["last", atEnd]]) {
      by(id).setAttribute("aria-disabled", String(off));
    }
  }

  // Movement
  function go(loop) {
    if (!ready) return;
    state.loop = Math.max(0, Math.min(ready.loops, loop));
    show();
  }
  function stop() {
    if (state.timer !== null) clearInterval(state.timer);
    state.timer = null;
    by("play").textContent = "Play";
    by("status").setAttribute("aria-live", "polite");
  }
  function play() {
    if (!ready) return;
    if (state.loop >= ready.loops) go(0);
    by("play").textContent = "Pause";
    by("status").setAttribute("aria-live", "off");  // a screen reader is told where it stops, not every loop
    state.timer = setInterval(() => {
      if (state.loop + 1 >= ready.loops) stop();
      go(state.loop + 1);
    }, Number(by("speed").value));
  }
  const toggle = () => { if (state.timer === null) play(); else { stop(); show(); } };
  const halt = (loop) => { stop(); go(loop); };
  const moves = {
    ArrowLeft: () => halt(state.loop - 1), ArrowRight: () => halt(state.loop + 1), " ": toggle,
    Home: () => halt(0), End: () => halt(ready ? ready.loops : 0),
  };

  // Choices
  function option(select, value, text) {
    const made = document.createElement("option");
    made.value = value;
    made.textContent = text;
    select.append(made);
  }
  function outcome(run, puzzle) {
    const at = run.correct[puzzle].lastIndexOf("0") + 1;  // from this loop on it stays right
    return run.correct[puzzle].endsWith("1") ? `✓ loop ${at + 1}` : "✗";
  }
  function nameChoices() {
    Array.from(by("puzzle").options).forEach((made, i) => {
      const note = data.notes[i] ? ` · ${data.notes[i]}` : "";
      made.textContent = `#${data.ids[i]} · ${outcome(runs[state.left], i)} | ${outcome(runs[state.right], i)}${note}`;
    });
  }
  data.ids.forEach((id, i) => option(by("puzzle"), i, `#${id}`));
  for (const side of sides) runs.forEach((run, i) => option(by(side), i, run.label));
  for (const id of ["puzzle", ...sides]) {
    by(id).value = state[id];
    by(id).addEventListener("change", () => {
      state[id] = Number(by(id).value);
      if (id === "puzzle") state.loop = 0;
      choose();
    });
  }
  by("first").addEventListener("click", moves.Home);
  by("back").addEventListener("click", moves.ArrowLeft);
  by("play").addEventListener("click", toggle);
  by("forward").addEventListener("click", moves.ArrowRight);
  by("last").addEventListener("click", moves.End);
  by("loop").addEventListener("input", () => halt(Number(by("loop").value)));
  by("speed").addEventListener("change", () => { if (state.timer !== null) { stop(); play(); } });
  by("player-box").addEventListener("keydown", (event) => {
    const at = event.target.tagName;
    if (event.altKey || event.ctrlKey || event.metaKey || !(event.key in moves)) return;
    if (at === "SELECT" || at === "SUMMARY" || at === "PRE") return;       // they use these keys themselves
    if (at === "BUTTON" && event.key === " ") return;                      // Space presses the button
    event.preventDefault();
    moves[event.key]();
  });
  by("player-box").style.setProperty("--least", layout.kind === "maze" ? "17rem" : "8.5rem");
  sides.forEach(makeBoard);
  choose();
})();
