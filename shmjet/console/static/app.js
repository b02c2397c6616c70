// The page: takes each state from the console and shows it; sends what the buttons ask for.

import { byId, setAttribute, setText } from "./dom.js";
import { JobList, JobView, isLiving, statusText } from "./jobs.js";
import { showMembers } from "./members.js";
import { Events, changeJob, token, unlock } from "./session.js";

const STATUS = { connecting: "Connecting", live: "Live", lost: "Connection lost, trying again", locked: "Locked: needs the token" };

const ALIVE = ["not_running", "starting", "running"];
const POSSIBLE = {
  cancel: [...ALIVE, "suspended", "suspended_exporting_snapshot", "completing"],
  suspend: ALIVE,
  resume: ["suspended"],
  restart: ALIVE,
};
const ASKED = { suspend: "Suspending", resume: "Resuming", restart: "Restarting" };

let latest = null;
const statuses = new Map();

const events = new Events(show, showConnection);
const list = new JobList(select);
const view = new JobView();

function select(id) {
  history.replaceState(null, "", `#job=${id}`);
  events.watch(id);
}

function selected() {
  return new URLSearchParams(location.hash.slice(1)).get("job");
}

function show(state) {
  announceChanges(state);
  latest = state;
  const wanted = selected();
  list.update(state);
  view.update(state);
  showMembers(state);
  showEmpty(state);
  const button = byId("unlock");
  button.hidden = !state.changes || token() !== null;
  const card = state.selected?.card;
  for (const [verb, statuses] of Object.entries(POSSIBLE)) {
    const change = byId(verb);
    change.disabled = !state.changes || card === undefined || !statuses.includes(card.status);
    setAttribute(change, "title", state.changes ? null : "Read-only: the console was started without a token");
  }
  document.title = card ? `${card.name} · ${statusText(card.status)} · shmjet` : "shmjet console";
  if (wanted !== null && card?.id !== wanted && state.jobs.length) history.replaceState(null, "", location.pathname);
}

const EMPTY = {
  alone: ["No member is running", "Start a program that calls shmjet.new_instance(); it appears here by itself."],
  idle: ["Nothing has run yet", "The engine is idle. A job appears here as soon as it is submitted."],
  locked: ["This console is private", "Enter its token to see what runs."],
};

function showEmpty(state) {
  const lives = state.members.some((member) => !member.ended);
  byId("empty").hidden = state.jobs.length > 0;
  byId("members-section").hidden = state.members.length === 0;
  tellEmpty(lives ? "idle" : "alone");
}

function tellEmpty(kind) {
  const [title, text] = EMPTY[kind];
  setText(byId("empty-title"), title);
  setText(byId("empty-text"), text);
}

function showConnection(name) {
  setAttribute(byId("connection"), "data-state", name);
  setText(byId("connection-text"), STATUS[name]);
  if (name === "locked") {
    byId("unlock").hidden = false;
    setText(byId("unlock"), "Enter the token");
    if (latest === null) {
      tellEmpty("locked");
      byId("empty").hidden = false;
    }
  }
}

/** Say aloud when a job starts or ends; not what was so when the page was opened. */
function announceChanges(state) {
  for (const card of state.jobs) {
    const before = statuses.get(card.id);
    const now = `${card.execution} ${card.status}`;
    if (latest !== null && before !== now) announce(`${card.name}: ${statusText(card.status)}`);
    statuses.set(card.id, now);
  }
}

let hiding = 0;

function announce(text) {
  setText(byId("announce"), text);
  byId("announce").classList.add("is-shown");
  clearTimeout(hiding);
  hiding = setTimeout(() => byId("announce").classList.remove("is-shown"), 5000);
}

// -- the token --------------------------------------------------------------------------------------------------------

let afterUnlock = null;

function askForToken(then) {
  afterUnlock = then;
  byId("token-input").value = "";
  setText(byId("token-wrong"), "");
  byId("token-dialog").showModal();
  byId("token-input").focus();
}

async function sendToken() {
  const given = byId("token-input").value.trim();
  let right = false;
  try {
    right = given !== "" && (await unlock(given));
  } catch {
    // as if it were wrong: it can be tried again
  }
  if (!right) {
    setText(byId("token-wrong"), "That is not the token of this console.");
    byId("token-input").select();
    return;
  }
  byId("token-dialog").close();
  byId("unlock").hidden = true;
  announce("Changes are unlocked");
  events.watch(selected());
  afterUnlock?.();
}

byId("unlock").addEventListener("click", () => askForToken(null));
byId("token-send").addEventListener("click", sendToken);
byId("token-close").addEventListener("click", () => byId("token-dialog").close());
byId("token-input").addEventListener("keydown", (event) => {
  if (event.key === "Enter") sendToken();
});

// -- changes ----------------------------------------------------------------------------------------------------------

let toCancel = null;

function askToCancel() {
  if (token() === null) {
    askForToken(askToCancel);
    return;
  }
  toCancel = latest?.selected?.card ?? null;
  if (toCancel === null) return;
  setText(byId("cancel-text"), `“${toCancel.name}” ends; what it has not written by then is lost.`);
  byId("cancel-dialog").showModal();
  byId("cancel-no").focus();
}

byId("cancel").addEventListener("click", askToCancel);
byId("cancel-no").addEventListener("click", () => byId("cancel-dialog").close());
byId("cancel-yes").addEventListener("click", async () => {
  byId("cancel-dialog").close();
  const refused = await changeJob(toCancel.id, "cancel");
  announce(refused ? `Not cancelled: ${refused}` : `Cancelling ${toCancel.name}`);
});

async function change(verb) {
  if (token() === null) {
    askForToken(() => change(verb));
    return;
  }
  const card = latest?.selected?.card;
  if (card === undefined) return;
  const refused = await changeJob(card.id, verb);
  announce(refused ? `Not done: ${refused}` : `${ASKED[verb]} ${card.name}`);
}

for (const verb of Object.keys(ASKED)) byId(verb).addEventListener("click", () => change(verb));

window.addEventListener("hashchange", () => events.watch(selected()));
events.watch(selected());
