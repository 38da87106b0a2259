// Shows the changing part of a page anew every five seconds: the same markup that the server draws.
// Says so whenever it does not, so that nobody takes old figures for new ones.
"use strict";
(() => {
  const live = document.getElementById("live");
  const state = document.getElementById("live-state");
  const toggle = document.getElementById("live-toggle");
  if (!live || !state || !toggle) return;
  let paused = false;
  let asking = false;
  // Set only if it changes: each change is read out.
  const say = (text, isOld = true) => {
    if (state.textContent !== text) state.textContent = text;
    live.classList.toggle("old", isOld);
    state.classList.toggle("old-state", isOld);
  };
  const refresh = async () => {
    if (paused || asking || document.hidden) return;
    // What somebody is using is not taken away under their hands.
    const used = document.activeElement;
    if (live.contains(used) && used.matches("a, button, input")) {
      say("Waits while something in these figures is in use.", false);
      return;
    }
    asking = true;
    try {
      const signal = AbortSignal.timeout(4000);
      const headers = { "x-console-part": "live" };
      const answer = await fetch(location.href, { headers, signal, redirect: "error" });
      if (answer.status === 401) {
        paused = true;
        toggle.hidden = true;
        say("You are signed out, and these figures stand still. Load the page anew.");
        return;
      }
      if (!answer.ok) throw new Error(String(answer.status));
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      const regions = [...live.querySelectorAll(".scroll")];
      const kept = regions.map((region) => ({ left: region.scrollLeft, focused: region === document.activeElement }));
      if (paused) return;
      live.replaceChildren(...parsed.body.childNodes);
      live.querySelectorAll(".scroll").forEach((region, at) => {
        if (!kept[at]) return;
        region.scrollLeft = kept[at].left;
        if (kept[at].focused) region.focus({ preventScroll: true });
      });
      say("Live", false);
    } catch {
      say("The coordinator does not answer. These figures are old.");
    } finally {
      asking = false;
    }
  };
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    paused = !paused;
    toggle.textContent = paused ? "Go on" : "Pause";
    say(paused ? "Paused: these figures stand still." : "Live", paused);
    refresh();
  });
  document.addEventListener("visibilitychange", refresh);
  say("Live", false);
  // What has just been begun changes soon.
  setTimeout(refresh, 1000);
  setInterval(refresh, 5000);
})();
