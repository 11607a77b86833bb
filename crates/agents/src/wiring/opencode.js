// Tells tmux-pool what this OpenCode does. Written at each launch; changes are lost.
import { spawn } from "node:child_process"

const POOLCTL = "@POOLCTL@"
const APPROVE_MS = Number("@APPROVE_MS@")

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
const tell = (report) => (last = last.then(() => call(report).answer))

const textOf = (parts) =>
  parts.filter((part) => part.type === "text" && !part.synthetic && !part.ignored).map((part) => part.text).join("\n")

export const TmuxPool = async ({ client }) => {
  const subagents = new Set() // sessions of subagents: their prompts and turns are not the user's
  const asking = new Map() // running hooks, by the permission they wait for
  const answers = new Set() // ids of the agent's own messages
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
    const does = asked.metadata?.command ?? (asked.patterns ?? []).join(", ")
    const said = { event: "permission", conversation, tool: asked.permission, text: does }
    if (!APPROVE_MS) return tell(said)
    const { hook, answer } = call(said, ["--wait", `${APPROVE_MS}ms`])
    asking.set(asked.id, hook)
    answer.then(async (printed) => {
      if (!asking.delete(asked.id) || !printed) return
      const decision = JSON.parse(printed)
      await client.postSessionIdPermissionsPermissionId({
        path: { id: asked.sessionID, permissionID: asked.id },
        body: { response: decision.allow ? "once" : "reject" },
      })
    }).catch(() => {})
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
      if (subagents.has(sessionID) || status.type === "idle") return
      busy = true
      if (status.type === "retry") return report("working", { text: `tries again: ${status.message}` })
    },
    "session.idle": ({ sessionID }) =>
      subagents.has(sessionID) ? undefined : over("idle", [...answer.parts.values()].join("\n")),
    "session.error": ({ sessionID, error }) => {
      if (subagents.has(sessionID)) return
      if (error?.name === "MessageAbortedError") return over("interrupted")
      const status = error?.data?.statusCode ? `API error: ${error.data.statusCode} ` : ""
      return over("error", status + (error?.data?.message ?? error?.name ?? "unknown"))
    },
    "message.updated": ({ info }) => {
      if (info.role !== "assistant" || subagents.has(info.sessionID)) return
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

  tell({ event: "started", text: "startup" })
  return {
    event: async ({ event }) => void (await on[event.type]?.(event.properties)),
    "chat.message": async ({ sessionID }, { parts }) => {
      if (subagents.has(sessionID)) return
      if (conversation !== sessionID) {
        await tell({ event: "started", text: conversation ? "clear" : "startup", conversation: sessionID })
        conversation = sessionID
      }
      busy = true
      answers.clear()
      answer = { message: undefined, parts: new Map() }
      await report("prompt", { text: textOf(parts) })
    },
    "tool.execute.before": async ({ tool, sessionID }, { args }) => {
      const does = args?.command ?? args?.filePath ?? args?.pattern ?? args?.url ?? args?.description
      if (!subagents.has(sessionID)) busy = true
      await report("working", { text: does ? `${tool}: ${String(does).slice(0, 200)}` : tool })
    },
    "tool.execute.after": async ({ tool, args }, { output }) => {
      await report("tool", { text: tool, input: args ?? {}, response: String(output ?? "").slice(0, 20000) })
    },
    dispose: async () => {
      for (const hook of asking.values()) hook.kill()
      await report("ended")
    },
  }
}
