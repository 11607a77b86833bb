// Tells tmux-pool what this OpenCode does. Written at each launch; changes are lost.
import { spawn } from "node:child_process"

const POOLCTL = "@POOLCTL@"
const APPROVE_MS = Number("@APPROVE_MS@")

// A call takes milliseconds. One that takes longer than this is ended: OpenCode waits for it.
const CALL_LIMIT_MS = 5000
// Set by the first process that loads this: an OpenCode that a tool of it starts says nothing, it is another agent.
const OWNER = "TMUX_POOL_OPENCODE"

// Runs `poolctl hook opencode` with a report. `answer` resolves to what it prints.
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

// Reports reach the pool in the order in which things happened.
let last = Promise.resolve()
const tell = (report) => (last = last.then(() => told(report)).catch(() => ""))

function told(report) {
  const { hook, answer } = call(report)
  const limit = setTimeout(() => hook.kill(), CALL_LIMIT_MS)
  return answer.finally(() => clearTimeout(limit))
}

const textOf = (parts) =>
  parts.filter((part) => part.type === "text" && !part.synthetic && !part.ignored).map((part) => part.text).join("\n")

// The most telling argument of a tool, as its permission is asked for.
const what = (args) => {
  const found = ["command", "filePath", "path", "url", "pattern", "query", "description"].find((key) => args?.[key])
  return found && String(args[found])
}
const cut = (text, most) => String(text ?? "").slice(0, most).toWellFormed()

export const TmuxPool = async ({ client }) => {
  const first = !process.env[OWNER]
  process.env[OWNER] ??= String(process.pid)
  if (process.env[OWNER] !== String(process.pid)) return {}
  const subagents = new Set() // sessions of subagents: their prompts and turns are not the user's
  const asking = new Map() // running hooks, by the permission they wait for
  const answers = new Set() // ids of the agent's own messages
  const calls = new Map() // tools at work, by their call
  let conversation
  let answer = { message: undefined, parts: new Map() }
  let busy = false

  const report = (event, more = {}) => tell({ event, conversation, ...more })
  // The end of a turn is told once, however often OpenCode says it.
  const over = (event, text) => {
    if (!busy) return
    busy = false
    return report(event, { text })
  }
  const ask = (asked) => {
    const use = calls.get(asked.tool?.callID)
    const text = what(use?.args) ?? asked.metadata?.command ?? (asked.patterns ?? []).join(", ")
    const said = { event: "permission", conversation, tool: use?.tool ?? asked.permission, text }
    if (!APPROVE_MS) return tell(said)
    const { hook, answer } = call(said, ["--wait", `${APPROVE_MS}ms`])
    asking.set(asked.id, hook)
    answer.then(async (printed) => {
      if (!asking.delete(asked.id) || !printed) return
      const { allow, reason } = JSON.parse(printed)
      const reply = allow ? "once" : "reject"
      // With the reason, which the older call below does not take.
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
    }).catch(() => report("attention", { text: "the answer to its request did not reach it" }))
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
      sessionID === conversation ? over("idle", [...answer.parts.values()].join("\n")) : undefined,
    "session.error": ({ sessionID, error }) => {
      if (sessionID !== conversation) return
      if (error?.name === "MessageAbortedError") return over("interrupted")
      const status = error?.data?.statusCode ? `API error: ${error.data.statusCode} ` : ""
      return over("error", status + (error?.data?.message ?? error?.name ?? "unknown"))
    },
    "message.updated": ({ info }) => {
      if (info.role !== "assistant" || info.sessionID !== conversation) return
      answers.add(info.id)
      if (info.error?.name === "MessageAbortedError") return over("interrupted")
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

  // A subagent of an earlier process comes without `session.created`: it is asked for.
  const isSubagent = async (id) => {
    if (id === conversation || subagents.has(id)) return id !== conversation
    const found = await client.session.get({ path: { id } }).catch(() => undefined)
    if (found?.data?.parentID) subagents.add(id)
    return subagents.has(id)
  }

  if (first) tell({ event: "started", text: "startup" })
  return {
    event: async ({ event }) => void (await on[event.type]?.(event.properties)),
    "chat.message": async ({ sessionID }, { parts }) => {
      if (await isSubagent(sessionID)) return
      if (conversation !== sessionID) {
        await tell({ event: "started", text: conversation ? "clear" : "startup", conversation: sessionID })
        conversation = sessionID
      }
      busy = true
      answers.clear()
      calls.clear()
      answer = { message: undefined, parts: new Map() }
      await report("prompt", { text: textOf(parts) })
    },
    "tool.execute.before": async ({ tool, callID }, { args }) => {
      calls.set(callID, { tool, args })
      await report("working", { text: what(args) ? `${tool}: ${cut(what(args), 200)}` : tool })
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
