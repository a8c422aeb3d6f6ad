// Keeps a page up to date without moving the reader, and copies commands. Every page is whole without this script.
"use strict";
(() => {
  const LIVE = ["status", "main"];
  const STORED = "sadvise.refresh";
  const reduced = matchMedia("(prefers-reduced-motion: reduce)");
  let timer = 0;

  // ---- what the reader has changed on the page, by the id of the element ----

  function position() {
    const active = document.activeElement;
    return {
      focus: active && active.id ? active.id : address(active),
      open: [...document.querySelectorAll("details[open][id]")].map((details) => details.id),
      scrolled: [...document.querySelectorAll(".wide[id]")].map((box) => [box.id, box.scrollLeft]),
    };
  }

  // An element without an id is found again as the n-th of its kind with the same address or name.
  function address(element) {
    if (!element || element === document.body) return null;
    const key = likeness(element);
    const alike = [...document.querySelectorAll(element.tagName)].filter((other) => likeness(other) === key);
    return { tag: element.tagName, key, place: alike.indexOf(element) };
  }

  const likeness = (element) => element.getAttribute("href") || element.getAttribute("aria-label") || element.textContent;

  function found(focus) {
    if (!focus) return null;
    if (typeof focus === "string") return document.getElementById(focus);
    return [...document.querySelectorAll(focus.tag)].filter((other) => likeness(other) === focus.key)[focus.place];
  }

  function restore(before) {
    for (const id of before.open) document.getElementById(id)?.setAttribute("open", "");
    for (const [id, left] of before.scrolled) {
      const box = document.getElementById(id);
      if (box) box.scrollLeft = left;
    }
    found(before.focus)?.focus({ preventScroll: true });
  }

  // ---- refresh ----

  function isBusy() {
    const active = document.activeElement;
    return document.hidden || active?.matches("input, select, textarea") || String(getSelection()) !== "";
  }

  async function refresh() {
    if (isBusy()) return;
    let text;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "error" });
      if (!answer.ok) return;
      text = await answer.text();
    } catch {
      return; // the server is away: the page says as of when it is
    }
    if (isBusy()) return;
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const before = position();
    keepFigures(fresh);
    for (const id of LIVE) {
      const [old, next] = [document.getElementById(id), fresh.getElementById(id)];
      if (old && next) old.replaceChildren(...document.adoptNode(next).childNodes);
    }
    const [old, next] = [document, fresh].map((page) => page.querySelector("#pages ul"));
    if (old && next) old.replaceWith(document.adoptNode(next)); // the page of all clusters has none
    prepare();
    restore(before);
    document.dispatchEvent(new Event("sadvise:refreshed"));
  }

  // A figure whose data are the same stays as it is drawn.
  function keepFigures(fresh) {
    for (const figure of document.querySelectorAll("figure.chart[id]")) {
      const next = fresh.getElementById(figure.id);
      const data = (one) => one?.querySelector("script")?.textContent;
      if (next && data(next) === data(figure)) next.replaceWith(document.adoptNode(figure));
    }
  }

  // Pages that change by themselves can be stopped; they are for those who want little motion, until they ask.
  function isOn() {
    const stored = sessionStorage.getItem(STORED);
    return stored === null ? !reduced.matches : stored === "on";
  }

  function schedule() {
    clearInterval(timer);
    const button = document.getElementById("refresh");
    if (!button) return;
    const every = Number(button.dataset.every);
    if (isOn()) timer = setInterval(refresh, 1000 * every);
  }

  function prepareRefresh() {
    const button = document.getElementById("refresh");
    if (!button) return;
    button.hidden = false;
    const show = () => {
      button.setAttribute("aria-pressed", String(isOn()));
      button.textContent = isOn() ? `\u25cf refreshes every ${button.dataset.every} s` : "\u25cb refresh is off";
    };
    button.addEventListener("click", () => {
      sessionStorage.setItem(STORED, isOn() ? "off" : "on");
      show();
      schedule();
    });
    show();
  }

  // ---- copying ----

  async function copy(button) {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      document.getElementById("said").textContent = "Copied";
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    } catch {
      getSelection().selectAllChildren(code); // without HTTPS, the browser keeps the clipboard closed
    }
  }

  function prepare() {
    prepareRefresh();
    for (const button of document.querySelectorAll(".copy")) {
      button.hidden = false;
      button.addEventListener("click", () => copy(button));
    }
  }

  prepare();
  schedule();
})();
