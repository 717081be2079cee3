// @ts-check
// Asks the daemon: calls the API, follows the stream of events, and fetches agents, inbox and waits anew.

import { byId, put, show } from "./dom.js";
import { agents, state, touched } from "./state.js";

const CHANGES_NO_AGENT =
  /^(assistant|thinking|system|user$|text$|raw$|unknown$|interaction_query|connection|retry|network:allowed)/;

const CHANGES_INBOX = /^(question|message|clone|agent|turn:ended)/;
const REFRESH_MS = 250; // the shortest time between two looks at the daemon
const RETRY_MS = [500, 10_000]; // the first wait after a loss, and the longest
const MOST_OBJECTS = 1000; // of a page of a list
const FEW = 4; // as many changed agents are fetched one by one
export const PAGE = 1000; // events in a page of history
export const store = window.sessionStorage;

export class Failure extends Error {
  constructor(type, message, status) {
    super(message);
    this.type = type;
    this.status = status;
  }
}

export function takeToken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!found) return;
  state.token = found;
  store.setItem("token", found);
  history.replaceState(null, "", `${location.pathname}#/`);
}

export async function call(path, body) {
  const headers = { Authorization: `Bearer ${state.token}`, Accept: "application/json" };
  if (body) headers["Content-Type"] = "application/json";
  let response, answer;
  try {
    response = await fetch(`/api/v1${path}`, {
      method: body ? "POST" : "GET",
      headers,
      body: body && JSON.stringify(body),
      cache: "no-store",
    });
    answer = await response.json();
  } catch (problem) {
    throw new Failure(
      "Unreachable",
      response ? `the answer can't be read (${response.status})` : "'substratctl web' doesn't run",
      0,
    );
  }
  if (response.ok) return answer;
  if (response.status === 401) lock();
  throw new Failure(
    answer.error?.type ?? "Failed",
    answer.error?.message ?? `the answer is ${response.status}`,
    response.status,
  );
}

export function lock() {
  state.token = null;
  store.removeItem("token");
  document.body.dataset.view = "gate";
}

export const agentPath = (agent, verb = "") => `/agents/${encodeURIComponent(agent)}${verb && `/${verb}`}`;

/** Make a function that runs `work` soon, once for many calls, and again when calls came meanwhile. */
export function coalesced(work) {
  let waits = false,
    runs = false,
    ready = 0;
  async function run() {
    waits = false;
    runs = true;
    const began = performance.now();
    try {
      await work();
    } catch (problem) {
      if (!(problem instanceof Failure)) throw problem;
      if (state.is_open) heartbeat();
    } finally {
      runs = false;
      // At most a tenth of the time is spent on this, and a hidden tab needs it less.
      const took = performance.now() - began;
      ready = performance.now() + Math.max(document.hidden ? 3000 : REFRESH_MS, 9 * took);
      if (waits) setTimeout(run, ready - performance.now());
    }
  }
  return () => {
    if (waits) return;
    waits = true;
    if (!runs) setTimeout(run, Math.max(0, ready - performance.now()));
  };
}

/** Functions of the views that this module calls; `begin` in `page.js` puts them in, so that no view is imported. */
export const views = { render() {}, renderWaits(_waits, _queue) {}, start() {}, go() {}, take(_event) {} };

export const refreshAgents = coalesced(async () => {
  const ids = [...touched],
    wants_list = state.all_touched || ids.length > FEW;
  touched.clear();
  state.all_touched = false;
  try {
    if (wants_list) takeList(await all("/agents"));
    // An open agent is shown with more than the list has.
    for (const id of wants_list ? (state.opened ? [state.opened.id] : []) : ids) await refreshOne(id);
  } catch (problem) {
    state.all_touched = true;
    throw problem;
  }
  views.render();
});

/** Fetch a list page by page, each after a member of the last object before it. */
async function all(path, member = "id") {
  let list = [],
    page = [];
  do {
    try {
      page = await call(`${path}?limit=${MOST_OBJECTS}${list.length ? `&after=${list.at(-1)[member]}` : ""}`);
    } catch (problem) {
      if (problem.status !== 404 || !list.length) throw problem;
      return all(path, member); // the last one was removed meanwhile
    }
    list = list.concat(page);
  } while (page.length === MOST_OBJECTS);
  return list;
}

function takeList(list) {
  const there = new Set(list.map((agent) => agent.id));
  for (const id of agents.keys()) if (!there.has(id)) agents.delete(id);
  for (const agent of list) agents.set(agent.id, { ...agents.get(agent.id), ...agent });
}

async function refreshOne(id) {
  try {
    const before = agents.get(id)?.state,
      now = await call(agentPath(id));
    agents.set(id, now);
    // Who of a family needs a person depends on which of its members can act.
    if (before !== now.state && [...agents.values()].some((one) => one.family === now.family && one.id !== id)) {
      state.all_touched = true;
      refreshAgents();
    }
  } catch (problem) {
    if (problem.status !== 404) throw problem;
    agents.delete(id);
  }
}

export const refreshInbox = coalesced(async () => {
  state.inbox = await all("/inbox");
  views.render();
});

export const refreshWaits = coalesced(async () => {
  const [waits, queue] = [await all("/waits"), await all("/queue", "agent")];
  views.renderWaits(waits, queue);
});

export function refreshAll() {
  state.all_touched = true;
  refreshAgents();
  refreshInbox();
  if (state.view === "waits") refreshWaits();
  if (state.opened?.waiting) state.opened.load(); // it failed while the connection was lost
  if (state.view === "agent" && !state.opened) views.go();
}

export async function live() {
  let wait = RETRY_MS[0];
  while (state.token) {
    try {
      const newest = await call("/events?since=-1&limit=1");
      state.cursor ??= newest.cursor;
      state.journal ??= newest.journal;
      // The daemon's state was made anew, or is an older copy: its cursors aren't those that the page has.
      if (state.journal !== newest.journal || state.cursor > newest.cursor) location.reload();
      refreshAll();
      views.start();
      await follow(() => {
        wait = RETRY_MS[0];
        connected("");
      });
      connected("the connection was lost");
    } catch (problem) {
      connected(problem.message);
      if (!(problem instanceof Failure)) console.error(problem);
    }
    await new Promise((resolve) => {
      retryNow = resolve;
      setTimeout(resolve, wait * (0.8 + 0.4 * Math.random()));
    });
    wait = Math.min(2 * wait, RETRY_MS[1]);
  }
}

/** @type {(value?: unknown) => void} */
let retryNow = () => {};

/** Connect now, or ask at once whether the daemon is there. */
export function retry() {
  retryNow();
  heartbeat();
}

/** Ask whether the daemon answers: the stream outlasts its death, and says nothing then. */
export async function heartbeat() {
  if (document.hidden || !state.is_open) return;
  try {
    await call("/events?since=-1&limit=1");
    if (document.body.dataset.connected === "no") refreshAll();
    connected("");
  } catch (problem) {
    if (!(problem instanceof Failure)) throw problem;
    connected(problem.message);
  }
}

function follow(begun) {
  return new Promise((resolve) => {
    const from = `gathered=true&since=${state.cursor}&journal=${state.journal}`;
    const socket = new WebSocket(`ws${location.protocol.slice(4)}//${location.host}/api/v1/stream?${from}`, [
      "substrat.v1",
      `token.${state.token}`,
    ]);
    socket.onopen = () => {
      state.is_open = true;
      begun();
    };
    socket.onmessage = (message) => {
      for (const line of message.data.split("\n")) {
        try {
          take(JSON.parse(line));
        } catch (problem) {
          console.error(problem); // the other events of the message are shown all the same
        }
      }
    };
    socket.onclose = () => {
      state.is_open = false;
      resolve();
    };
  });
}

function connected(problem) {
  document.body.dataset.connected = problem ? "no" : "yes";
  put(byId("link-text"), problem ? `not connected: ${problem}` : "live");
  show(byId("retry"), Boolean(problem));
}

function take(event) {
  if (!(event.cursor > state.cursor)) return;
  state.cursor = event.cursor;
  const agent = agents.get(event.agent);
  if (event.kind.startsWith("tool-call-")) {
    if (agent) agent.activity = { text: String(event.text ?? "").slice(0, 200), since: event.time };
    renderSoon();
  } else if (!CHANGES_NO_AGENT.test(event.kind)) {
    touched.add(event.agent);
    refreshAgents();
    if (CHANGES_INBOX.test(event.kind)) refreshInbox();
    if (state.view === "waits") refreshWaits();
  }
  if (state.opened?.id === event.agent) state.opened.take(event);
  views.take(event);
}

const renderSoon = coalesced(async () => views.render());

const readPage = (agent, since) =>
  call(`/events?since=${since}&limit=${PAGE}${agent ? `&agent=${encodeURIComponent(agent)}` : ""}`);

/** Read events, of one agent or of all, from `since` up to a cursor; an agent may write faster than they are read. */
export async function readEvents(agent, since, until) {
  const events = [];
  for (;;) {
    const page = await readPage(agent, since);
    events.push(...page.events);
    if (!page.events.length || page.cursor >= until) return events;
    since = page.cursor;
  }
}

/** Read the newest events: as many as wanted, but fewer where they are huge, since an agent can write 8 MiB in one. */
export async function readNewest(agent, most) {
  const until = state.cursor; // the stream brings the events after it
  const page = await readPage(agent, -most);
  const next = page.cursor < until ? await readPage(agent, page.cursor) : page;
  if (next === page || !next.events.length) return page.events;
  const few = Math.max(20, 8 * page.events.length); // a page ends after 1 MiB
  if (few < most) return readEvents(agent, -few, until);
  return [...page.events, ...next.events, ...(await readEvents(agent, next.cursor, until))];
}
