// Shows the changing part of a page anew every five seconds: the same markup that the server draws.
"use strict";
(() => {
  const live = document.getElementById("live");
  const state = document.getElementById("live-state");
  const toggle = document.getElementById("live-toggle");
  if (!live || !state || !toggle) return;
  let paused = false;
  const refresh = async () => {
    if (paused || document.hidden || live.contains(document.activeElement)) return;
    try {
      const answer = await fetch(location.href, { headers: { "x-console-part": "live" }, redirect: "error" });
      if (answer.status === 401) { state.textContent = "You are signed out. Load the page anew."; paused = true; return; }
      if (!answer.ok) throw new Error();
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      live.replaceChildren(...parsed.body.childNodes);
      state.textContent = "Live";
    } catch { state.textContent = "The coordinator does not answer; these figures are older."; }
  };
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    paused = !paused;
    toggle.textContent = paused ? "Go on" : "Pause";
    state.textContent = paused ? "Paused" : "Live";
  });
  state.textContent = "Live";
  setInterval(refresh, 5000);
})();
