// Reports this OpenCode's events to tmux-pool. Generated at each launch; changes are lost.
import { spawn } from "node:child_process"

const POOLCTL = "@POOLCTL@"
const APPROVE_MS = Number("@APPROVE_MS@")

// Time limit of a call, for which OpenCode waits; a call normally takes a few milliseconds.
const CALL_LIMIT_MS = 5000
// Environment variable set by the first process that loads this plugin: an OpenCode started by one of its tools
// is another agent and reports nothing.
const OWNER = "TMUX_POOL_OPENCODE"

// Runs `poolctl hook opencode` with a report. `answer` resolves to its output.
function call(report, args = []) {
  const hook = spawn(POOLCTL, ["hook", "opencode", ...args], { stdio: ["pipe", "pipe", "ignore"] })
  let printed = ""
  const answer = new Promise((resolve) => {
    hook.on("error", () => resolve(""))
    hook.on("close", () => resolve(printed))
  })
  hook.stdout.on("data", (piece) => (printed += piece))
  hook.stdin.on("error", () => {})
  hook.stdin.end(JSON.stringify(report))
  return { hook, answer }
}

// Sends reports one after the other, in the order of the events.
let last = Promise.resolve()
const send = (report) => (last = last.then(() => sendNow(report)).catch(() => ""))

function sendNow(report) {
  const { hook, answer } = call(report)
  const limit = setTimeout(() => hook.kill(), CALL_LIMIT_MS)
  return answer.finally(() => clearTimeout(limit))
}

const textOf = (parts) =>
  parts.filter((part) => part.type === "text" && !part.synthetic && !part.ignored).map((part) => part.text).join("\n")

// Returns the most telling argument of a tool.
const summary = (args) => {
  const found = ["command", "filePath", "path", "url", "pattern", "query", "description"].find((key) => args?.[key])
  return found && String(args[found])
}
const cut = (text, most) => String(text ?? "").slice(0, most).toWellFormed()

export const TmuxPool = async ({ client }) => {
  const first = !process.env[OWNER]
  process.env[OWNER] ??= String(process.pid)
  if (process.env[OWNER] !== String(process.pid)) return {}
  const subagents = new Set() // sessions of subagents, whose prompts and turns are not reported
  const asking = new Map() // hooks that wait for a decision, by the id of the permission
  const answers = new Set() // ids of the agent's messages
  const calls = new Map() // running tools, by the id of the call
  let conversation
  let answer = { message: undefined, parts: new Map() }
  let busy = false
  let queued = [] // prompts whose turn has not begun: `id` of the message, `text`

  const report = (event, more = {}) => send({ event, conversation, ...more })
  // Reports the end of a turn once, although OpenCode may signal it several times.
  const endTurn = (event, text) => {
    if (!busy) return
    busy = false
    answers.clear()
    return report(event, { text })
  }
  const said = () => [...answer.parts.values()].join("\n")
  // Begins the turn of the prompts up to this message; ids ascend with time. A turn with an answer is over by that.
  const begin = (message) => {
    const taken = queued.filter(({ id }) => id <= message)
    if (!taken.length) return
    queued = queued.filter(({ id }) => id > message)
    if (answers.size) endTurn("idle", said())
    busy = true
    answers.clear()
    calls.clear()
    answer = { message: undefined, parts: new Map() }
    return Promise.all(taken.map(({ text }) => report("prompt", { text })))
  }
  const ask = (asked) => {
    const use = calls.get(asked.tool?.callID)
    const text = summary(use?.args) ?? asked.metadata?.command ?? (asked.patterns ?? []).join(", ")
    // Where the arguments are known, `poolctl` describes them in place of the text.
    const request = { event: "permission", conversation, tool: use?.tool ?? asked.permission, text, input: use?.args }
    if (!APPROVE_MS) return send(request)
    const { hook, answer } = call(request, ["--wait", `${APPROVE_MS}ms`])
    asking.set(asked.id, hook)
    answer.then(async (printed) => {
      if (!asking.delete(asked.id) || !printed) return
      const { allow, reason } = JSON.parse(printed)
      const reply = allow ? "once" : "reject"
      // This call has a field for the reason; the older one below does not.
      const sent = await client._client?.post({
        url: "/permission/{requestID}/reply",
        path: { requestID: asked.id },
        body: { reply, message: allow ? undefined : reason },
        headers: { "Content-Type": "application/json" },
      })
      if (sent?.data) return
      await client.postSessionIdPermissionsPermissionId({
        path: { id: asked.sessionID, permissionID: asked.id },
        body: { response: reply },
        throwOnError: true,
      })
    }).catch(() => report("attention", { text: "the decision on its request could not be delivered" }))
  }
  const answered = (id) => {
    const hook = asking.get(id)
    asking.delete(id)
    hook?.kill()
    return report("working")
  }
  const on = {
    "session.created": ({ info }) => info.parentID && subagents.add(info.id),
    "session.updated": ({ info }) => info.parentID && subagents.add(info.id),
    "session.status": ({ sessionID, status }) => {
      if (sessionID !== conversation || status.type === "idle") return
      busy = true
      if (status.type === "retry") return report("working", { text: `tries again: ${status.message}` })
    },
    "session.idle": ({ sessionID }) =>
      sessionID === conversation ? endTurn("idle", said()) : undefined,
    "session.error": ({ sessionID, error }) => {
      if (sessionID !== conversation) return
      if (error?.name === "MessageAbortedError") return endTurn("interrupted")
      const status = error?.data?.statusCode ? `API error: ${error.data.statusCode} ` : ""
      return endTurn("error", status + (error?.data?.message ?? error?.name ?? "unknown"))
    },
    "message.updated": ({ info }) => {
      if (info.role !== "assistant" || info.sessionID !== conversation) return
      const begun = begin(info.parentID ?? "")
      answers.add(info.id)
      return info.error?.name === "MessageAbortedError" ? endTurn("interrupted") : begun
    },
    "message.part.updated": ({ part }) => {
      if (part.type !== "text" || !answers.has(part.messageID)) return
      if (answer.message !== part.messageID) answer = { message: part.messageID, parts: new Map() }
      answer.parts.set(part.id, part.text)
    },
    "permission.asked": ask,
    "permission.replied": ({ requestID, permissionID }) => answered(requestID ?? permissionID),
    "question.asked": ({ questions }) =>
      report("attention", { text: (questions ?? []).map((asked) => asked.question).join("\n") }),
    "question.replied": ({ requestID }) => answered(requestID),
    "question.rejected": ({ requestID }) => answered(requestID),
  }

  // The session of a subagent of an earlier process has no `session.created`: its parent is queried.
  const isSubagent = async (id) => {
    if (id === conversation || subagents.has(id)) return id !== conversation
    const found = await client.session.get({ path: { id } }).catch(() => undefined)
    if (found?.data?.parentID) subagents.add(id)
    return subagents.has(id)
  }

  if (first) send({ event: "started", text: "startup" })
  return {
    event: async ({ event }) => void (await on[event.type]?.(event.properties)),
    "chat.message": async ({ sessionID }, { message, parts }) => {
      if (await isSubagent(sessionID)) return
      if (conversation !== sessionID) {
        await send({ event: "started", text: conversation ? "clear" : "startup", conversation: sessionID })
        conversation = sessionID
        busy = false
        queued = []
      }
      queued.push({ id: message.id, text: textOf(parts) })
      // OpenCode takes a prompt while a turn runs, and answers it later.
      if (!busy) await begin(message.id)
    },
    "tool.execute.before": async ({ tool, callID }, { args }) => {
      calls.set(callID, { tool, args })
      await report("working", { text: summary(args) ? `${tool}: ${cut(summary(args), 200)}` : tool })
    },
    "tool.execute.after": async ({ tool, callID, args }, { output }) => {
      calls.delete(callID)
      await report("tool", { text: tool, input: args ?? {}, response: cut(output, 20000) })
    },
    dispose: async () => {
      for (const hook of asking.values()) hook.kill()
      await report("ended")
    },
  }
}
