"""The parts of test-agents. Each gets a lab, the number of prompts to send, and `check(right, what)`, which records
failures; it returns its measurements."""
import collections
import contextlib
import datetime
import hashlib
import itertools
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

from lab import OVER, TRACKED, Failed, told, until
from texts import arrives, some

HOGS = 3
# Longest prompt: Gemini CLI needs more than a minute and a half to read 200 kB.
LONGEST = {"gemini": 20_000}
# Seconds after which the script, in place of a person, settles an unconfirmed prompt.
SEEN_TO_AFTER = 6


def between(first, last):
    """Seconds between two times printed by poolctl."""
    at = [datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")) for stamp in (first, last)]
    return (at[1] - at[0]).total_seconds()


def times(messages):
    """Median and longest time from the request to the agent's confirmation."""
    taken = sorted(between(m["created_at"], m["accepted_at"]) for m in messages if m["accepted_at"])
    return {"accepted_s": taken[len(taken) // 2], "at_most_s": taken[-1]} if taken else {}


def ended(check, message, state="done", reason=None, what="it"):
    right = message["state"] == state and (reason is None or message["reason"] == reason)
    check(right, f"{what} is {message['state']}: {message['reason']}")


def alike(check, session, texts):
    """Checks that the agent got exactly these prompts in this order; returns the numbers of sent and of wrong ones."""
    kind = session.lab.kind
    with contextlib.suppress(Failed):  # agents write their records a little later
        until("all are recorded", 5, lambda: len(session.prompts()) >= len(texts))
    wanted, got = [arrives(kind, text) for text in texts], [arrives(kind, prompt) for prompt in session.prompts()]
    wrong = [(n, w, g) for n, (w, g) in enumerate(zip(wanted, got)) if w != g]
    for n, w, g in wrong[:3]:
        check(False, f"prompt {n}: sent {w[:80]!r} ({len(w)}), arrived {g[:80]!r} ({len(g)})")
    more = [text[:60] for text in collections.Counter(got) - collections.Counter(wanted)]
    check(len(wanted) == len(got), f"{len(wanted)} were sent, {len(got)} arrived, too often: {more[:5]}")
    return {"sent": len(wanted), "wrong": len(wrong)}


def exact(lab, count, check, name="exact"):
    """Prompts of all kinds and lengths arrive unchanged, once, and each ends."""
    session, texts, messages = lab.session(name), some(count, 1), []
    texts = [text for text in texts if len(text) <= LONGEST.get(lab.kind, len(text))]
    for n, text in enumerate(texts):
        message = session.send(text, seconds=120)
        ended(check, message, what=f"prompt {n} {text[:60]!r} ({len(text)})")
        if message["state"] not in OVER:
            raise Failed(f"its lane is held: {told(session.show())}")
        messages.append(session.message(message["id"]))
    check(session.send(" \n\t")["state"] == "refused", "a text of blanks is not refused")
    done = sum(message["state"] == "done" for message in messages)
    return {**alike(check, session, texts), "done": done, **times(messages)}


def killed(lab, count, check, name="killed"):
    """Prompts under repeated SIGKILL of poold: none arrives twice, and uncertain ones are reported as such."""
    count = max(count // 2, 2)
    session, chance, texts = lab.session(name), random.Random(2), some(count, 3, marked=True)
    numbers = [session.send(text, wait="queued")["id"] for text in texts]
    kills, since, seen_to = 0, {}, collections.Counter()
    deadline = time.monotonic() + 60 + 12 * count
    while True:
        messages = {message["id"]: message for message in session.messages() if message["id"] in numbers}
        if all(messages[number]["state"] in OVER for number in numbers):
            break
        if time.monotonic() > deadline:
            raise Failed(f"not over after {kills} kills: {told(session.show())}; {seen_to}")
        for number, message in messages.items():
            at = since.setdefault((number, message["state"]), time.monotonic())
            stuck = message["state"] == "in_doubt" or message["state"] == "typed" and message["reason"]
            if stuck and time.monotonic() - at > SEEN_TO_AFTER:
                shown = told(session.show())
                check(message["reason"], f"prompt {number} is in doubt without a reason")
                check(message["state"] == "typed" or "attention" in shown, f"prompt {number} is in doubt, and the session {shown}")
                seen_to[see_to(session, message, f"(number {numbers.index(number)})")] += 1
                del since[number, message["state"]]
        if kills < count:
            time.sleep(chance.uniform(0.05, 1.2))
            lab.kill_poold()
            kills += 1
        else:
            time.sleep(0.3)
    facts = settled(session, texts, [messages[number] for number in numbers], check)
    why = collections.Counter(m["reason"] for m in messages.values() if m["state"] != "done")
    return {**facts, "kills": kills, "seen_to": dict(seen_to), **({"not_done": dict(why)} if why else {})}


def see_to(session, message, mark):
    """Settles a stuck message as a person would: looks where its text is, and resolves it."""
    if message["state"] == "typed" and "stands in the composer" in (message["reason"] or ""):
        session.keys("Enter")
        return "entered"
    arrived = any(prompt.endswith(mark) for prompt in session.prompts())
    screen = session.screen()
    stands = not arrived and (mark in screen or "[Pasted" in screen)
    if stands:
        session.keys("C-c")
    words = ["queue", "resolve", session.name, message["id"], "--as", "done" if arrived else "dead"]
    session.lab.poolctl(*words, may_fail=True)
    return "had arrived" if arrived else "stood in the composer" if stands else "nowhere"


def settled(session, texts, messages, check):
    """Checks that each prompt that is done arrived once, and none twice; returns counts."""
    time.sleep(2)  # late arrivals would still come, and agents write their records a little later
    got = collections.Counter(arrives(session.lab.kind, prompt) for prompt in session.prompts())
    for n, (text, message) in enumerate(zip(texts, messages)):
        how_often, done = got.pop(arrives(session.lab.kind, text), 0), message["state"] == "done"
        check(how_often <= 1, f"prompt {n} arrived {how_often} times")
        check(how_often == 1 or not done, f"prompt {n} is done and never arrived as it is: {text[:60]!r}")
        check(done or message["reason"], f"prompt {n} is {message['state']} without a reason")
    check(not got, f"arrived but never sent: {[text[:80] for text in got][:3]}")
    return {"sent": len(texts), **collections.Counter(message["state"] for message in messages)}


@contextlib.contextmanager
def hogs():
    """Runs programs that only use processor time."""
    found = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(HOGS)]
    try:
        yield
    finally:
        for hog in found:
            hog.kill()
            hog.wait()


def hogged(lab, count, check):
    """`exact` with half the prompts and `killed` with a quarter, while other programs use all processors."""
    with hogs():
        return {**exact(lab, max(count // 2, 2), check, "hogged"), "killed": killed(lab, count // 2, check, "hogged-killed")}


def busy(lab, _, check):
    """Prompts sent while the agent is busy: each is worked in its turn, in order."""
    session, texts = lab.session("busy"), ["SLOW is the first", *(f"and then {n}" for n in range(5))]
    first = session.send(texts[0], wait="accepted")
    ended(check, first, "accepted", what="the first")
    numbers = [session.send(text, wait="queued")["id"] for text in texts[1:]]
    check(all(session.message(n)["state"] == "queued" for n in numbers), "one was typed while the agent was busy")
    for number in [first["id"], *numbers]:
        ended(check, session.wait_over(number, seconds=60), what=f"prompt {number}")
    return alike(check, session, texts)


# Keys that interrupt a turn; default: Escape.
INTERRUPTS = {"opencode": ["Escape", "Escape"], "aider": ["C-c"]}


def interrupted(lab, _, check):
    """An interruption before and during the answer: the prompt ends as interrupted, and the next one arrives unchanged."""
    session, facts, sent = lab.session("interrupted"), {}, ["hello"]
    session.send("hello")
    for when, text, pause in [("before", "SLOW one", 1.5), ("during", "SLOWEND one", 3)]:
        message = session.send(text, wait="accepted")
        ended(check, message, "accepted", what=text)
        time.sleep(pause)
        began = time.monotonic()
        for key in INTERRUPTS.get(lab.kind, ["Escape"]):
            session.keys(key)
            time.sleep(0.3)  # two at once would be a different key
        message = session.wait_over(message["id"], seconds=40)
        ended(check, message, "dead", "interrupted", when)
        facts[when] = f"{message['reason']} after {time.monotonic() - began:.1f} s"
        number = session.send(f"the next, {when}", wait="queued")["id"]
        with contextlib.suppress(Failed):
            session.wait_over(number, seconds=8)
        if "composer" in (waits := session.show()["waits"] or ""):
            facts[when] += f"; then {waits}"  # the agent put the text back into its composer
            session.keys("C-c")
        ended(check, session.wait_over(number, seconds=40), what=f"the next, {when},")
        sent += [text, f"the next, {when}"]
    return {**facts, **alike(check, session, sent)}


def permission(lab, _, check):
    """One request is approved, one denied, and one without an answer is left to the terminal."""
    session = lab.session("permission")
    for verb, more in [("denied", ["--deny", "--reason", "not now"]), ("approved", [])]:
        number = session.send(f"USETOOL to be {verb}", wait="accepted")["id"]
        ask = session.wait_shown(f"the one to be {verb}", lambda shown: shown["ask"])["ask"]
        check(ask["kind"] == "permission" and ask["answerable"] and str(lab.made) in ask["text"], f"{verb}: it asks {ask}")
        lab.poolctl("approve", session.name, *more)
        ended(check, session.wait_over(number), what=verb)
        check(lab.made.exists() == (verb == "approved"), f"{verb}: the file is {'' if lab.made.exists() else 'not '}there")
        again = lab.poolctl("approve", session.name, may_fail=True).returncode
        check(again == 4, f"{verb}: answered once more: exit {again}")
    lab.made.unlink(missing_ok=True)
    session = lab.session("timed-out", "quick")
    number = session.send("USETOOL to be timed out", wait="accepted")["id"]
    shown = session.wait_shown("it is left to the terminal", lambda shown: shown["ask"] and not shown["ask"]["answerable"])
    check(shown["activity"] == "attention" and not lab.made.exists(), f"after its time: {told(shown)}")
    check(lab.poolctl("approve", session.name, may_fail=True).returncode == 4, "it can be answered from outside still")
    until("the dialog is shown", 10, lambda: "1. Yes" in session.screen() or "Allow once" in session.screen())
    session.keys("Enter")
    ended(check, session.wait_over(number), what="timed out")
    check(lab.made.exists(), "timed out: the file is not there")
    return {"then": told(shown)}


QUESTIONS = """CALL AskUserQuestion {"questions": [
{"id": "colour", "question": "Which colour?", "header": "Colour", "multiSelect": false, "options": [{"label": "Red", "description": "a"}, {"label": "Blue", "description": "b"}]},
{"id": "fruits", "question": "Which fruits?", "header": "Fruits", "multiSelect": true, "options": [{"label": "Apple", "description": "a"}, {"label": "Pear", "description": "b"}]}]}"""


def questions_on_screen(lab, check):
    """Codex asks questions in plan mode only, and reports them to no hook."""
    session = lab.session("questions")
    session.send("hello")
    session.send("/plan", more=["--raw"])
    number = session.send(QUESTIONS.replace("AskUserQuestion", "request_user_input"), wait="accepted")["id"]
    ask = session.wait_shown("what it asks", lambda shown: shown["ask"])["ask"]
    check(ask["kind"] == "question" and "Which colour?" in ask["text"] and not ask["answerable"], f"it asks {ask}")
    behind = session.send("meanwhile", wait="queued")["id"]
    for key in ["2", "1"]:
        session.keys(key)
    ended(check, session.wait_over(number), what="answered")
    ended(check, session.wait_over(behind), what="behind it")
    return {"asks": ask["text"].splitlines()[:2]}


def questions(lab, _, check):
    """Questions are answered in words or declined, while a prompt waits; a plan is approved."""
    if lab.kind == "codex":
        return questions_on_screen(lab, check)
    session = lab.session("questions")

    def asked(prompt, kind):
        number = session.send(prompt, wait="accepted")["id"]
        ask = session.wait_shown("what it asks", lambda shown: shown["ask"] and shown["ask"]["answerable"])["ask"]
        check(ask["kind"] == kind, f"it asks {ask}")
        behind = session.send("meanwhile", wait="queued")["id"]
        return number, behind, ask["text"]

    def over(number, behind, what):
        ended(check, session.wait_over(number), what=what)
        ended(check, session.wait_over(behind), what=f"behind {what}")

    number, behind, text = asked(QUESTIONS, "question")
    check(text == "Which colour? (Red / Blue)\nWhich fruits? (some of Apple / Pear)", f"it asks {text}")
    yes = lab.poolctl("approve", session.name, may_fail=True).returncode
    check(yes == 4, f"a yes to questions: exit {yes}")
    lab.poolctl("approve", session.name, "--answer", "Blue", "--answer", "Apple, Pear")
    over(number, behind, "answered")
    record = session.transcript().read_text()
    answers = re.findall(r'questions have been answered: (.*?)\. You can', record)
    check(len(answers) == 1 and "Blue" in answers[0] and "Apple, Pear" in answers[0], f"it understood {answers}")
    number, behind, _ = asked(QUESTIONS.replace("colour", "color"), "question")
    lab.poolctl("approve", session.name, "--deny", "--reason", "as you like")
    over(number, behind, "declined")
    check("as you like" in session.transcript().read_text(), "it does not know why it was declined")
    session.send("CALL EnterPlanMode {}")
    number, behind, text = asked('CALL ExitPlanMode {"plan": "# The plan\\n1. do it"}', "permission")
    check(text == "# The plan\n1. do it", f"its plan is {text!r}")
    lab.poolctl("approve", session.name)
    over(number, behind, "planned")
    return {"answers": answers}


def orphan(lab, _, check):
    """The agent is killed with SIGKILL during a tool call: no process is left, and the prompt ends."""
    session = lab.session("orphan")
    number = session.send("USETOOL and USESLEEP", wait="accepted")["id"]

    def sleeping():
        return [pid for pid, words in lab.processes().items() if words == "sleep 345"]

    def at_work():
        if ask := session.show()["ask"]:  # Claude Code lets it sleep without asking
            if ask["answerable"]:
                lab.poolctl("approve", session.name, may_fail=True)
            else:
                session.keys("Enter")
        return sleeping()
    tools = until("the tool is at work", 30, at_work)
    began = time.monotonic()
    os.kill(session.show()["generator"]["pid"], signal.SIGKILL)
    ended(check, session.wait_over(number), "dead", "its agent ended during its turn")
    session.wait("the tool is gone", lambda: not sleeping())
    left = [words for words in lab.processes().values() if words.startswith(lab.agent)]
    check(not left, f"left: {left}")
    return {"tools": len(tools), "gone_s": round(time.monotonic() - began, 1), "then": told(session.show())}


def resumed(lab, _, check):
    """A prompt wakes a parked session, which resumes its conversation."""
    session, texts = lab.session("resumed"), ["before the pause", "after the pause"]
    session.send(texts[0])
    before = session.transcript()
    lab.poolctl("park", session.name)
    session.wait_shown("it is parked", lambda shown: shown["lifecycle"] == "parked")
    began = time.monotonic()
    ended(check, session.send(texts[1]))
    took, shown = round(time.monotonic() - began, 1), session.show()
    check(before and session.transcript() == before, f"{before} became {session.transcript()}")
    check(shown["resumed"] and shown["incarnations"] == 2, f"resumed {shown['resumed']}, {shown['incarnations']} incarnations")
    return {**alike(check, session, texts), "woken_s": took}


# First prompts after a wake: short texts with a tab, words that would end an agent that reads them as keys, and others.
FIRST = ["tab\there", "quit", "exit", ":q", "a\tb\tc", "plain words", "Grüße 你好 🎉", "two\nlines", "@file of mine", "x" * 30_000]


def woken(lab, count, check):
    """The first prompt after each of many wakes arrives unchanged."""
    session, sent, took = lab.session("woken"), ["hello"], []
    session.send("hello")
    for n in range(max(count // 2, len(FIRST))):
        lab.poolctl("park", session.name)
        session.wait_shown("it is parked", lambda shown: shown["lifecycle"] == "parked")
        text = FIRST[n % len(FIRST)]
        text = text if text in ("quit", "exit", ":q") else f"{text} {n}"
        began = time.monotonic()
        message = session.send(text)
        took.append(round(time.monotonic() - began, 2))
        ended(check, message, what=f"prompt {n} {text[:40]!r}")
        if message["state"] not in OVER:
            raise Failed(f"its lane is held: {told(session.show())}")
        sent.append(text)
    return {**alike(check, session, sent), "woken_s": sorted(took)[len(took) // 2], "at_most_s": max(took)}


def afternoon(lab, count, check, kills=False):
    """Prompts of all kinds for six sessions on three slots, parked and woken by that and by hand: every prompt arrives
    exactly, once, in its session's order, in one conversation per session; none is lost or stuck. POOL_SEED varies the order."""
    seed = int(os.environ.get("POOL_SEED", "1"))
    chance, texts = random.Random(seed), some(count, seed, marked=True)
    lab.reconfigure("[pool]\nmax_sessions = 3\nidle_settle = '2s'\n")
    sessions, sent = [], {}
    for n in range(6):
        session = lab.session(f"a{n}")
        hello = session.send("hello")
        ended(check, hello, what="the first")
        sessions.append(session)
        sent[session.name] = [(hello["id"], "hello")]
    for text in [text if len(text) <= 30_000 else text[:30_000] + text[-20:] for text in texts]:
        session = chance.choice(sessions)
        sent[session.name].append((session.send(text, wait="queued", more=["--wake"])["id"], text))
    began, killed, parked, seen_to = time.monotonic(), 0, 0, collections.Counter()
    while True:
        states = {session.name: {m["id"]: m for m in session.messages()} for session in sessions}
        left = [(s, states[s.name][n]) for s in sessions for n, _ in sent[s.name] if states[s.name][n]["state"] not in OVER]
        if not left:
            break
        if time.monotonic() - began > 120 + 15 * count:
            raise Failed(f"{len(left)} are not over: {[(s.name, m['state'], told(s.show())) for s, m in left[:6]]}")
        for session, message in left:
            stuck = message["state"] == "in_doubt" or message["state"] == "typed" and message["reason"]
            if stuck and kills:
                seen_to[see_to(session, message, re.search(r"\(number \d+\)$", dict(sent[session.name])[message["id"]])[0])] += 1
        if kills and killed < count:
            time.sleep(chance.uniform(0.3, 1.2))
            lab.kill_poold()
            killed += 1
        elif kills:
            time.sleep(0.5)  # a poold has to live for some seconds to settle interrupted deliveries
        else:
            time.sleep(chance.uniform(1, 4))
            parked += not lab.poolctl("park", chance.choice(sessions).name, may_fail=True).returncode
    over = collections.Counter(states[s.name][n]["state"] for s in sessions for n, _ in sent[s.name])
    check(kills or over == {"done": count + 6}, f"what became of them: {dict(over)}")
    wrong = 0
    for session in sessions:
        got = [arrives(lab.kind, prompt) for prompt in session.prompts()]
        wanted = [arrives(lab.kind, text) for n, text in sent[session.name] if kills is False or states[session.name][n]["state"] == "done"]
        if kills:
            got = [prompt for prompt in got if prompt in wanted]
        wrong += got != wanted
        check(got == wanted, f"{session.name} got {len(got)} of {len(wanted)}, the first other one is "
              f"{next(((w[-60:], g[-60:]) for w, g in zip(wanted, got) if w != g), None)}")
    lost = [event for event in lab.ask("events") if event["kind"] == "conversation_lost"]
    check(not lost or kills, f"{len(lost)} conversations were lost")
    return {"sent": count, **over, "sessions_wrong": wrong, "parked_by_hand": parked, "kills": killed, "seen_to": dict(seen_to)}


def afternoon_killed(lab, count, check):
    """`afternoon` under repeated SIGKILL of poold."""
    return afternoon(lab, count, check, kills=True)


def cut_off(lab, count, check):
    """The tmux server dies within 0.3 s of a session's first prompt: the session is restored and works the next one."""
    chance, took, lost = random.Random(5), [], []
    for n in range(max(count // 2, 2)):
        session = lab.session(f"cut-off-{n}")
        first = session.send("the first", wait="queued")["id"]
        until("it is typed", 30, lambda: session.message(first)["state"] not in ("queued", "typing"), pause=0.01)
        time.sleep(chance.uniform(0, 0.3))
        server = subprocess.run(["tmux", "-S", lab.dir / "state" / "run" / "tmux.sock", "display-message", "-p", "#{pid}"],
                                capture_output=True, text=True, check=True).stdout
        os.kill(int(server), signal.SIGKILL)
        session.wait_shown("it is lost", lambda shown: shown["lifecycle"] == "lost")
        began = time.monotonic()
        lab.poolctl("restore", session.name)
        took.append(round(time.monotonic() - began, 2))
        for message in session.messages():
            if message["state"] == "in_doubt":  # settled as a person would: it did not arrive
                lab.poolctl("queue", "resolve", session.name, message["id"], "--as", "dead")
        ended(check, session.send("the second"), what=f"round {n}: the second")
        lost = [event for event in lab.ask("events") if event["kind"] == "conversation_lost"]
        lab.poolctl("rm", "--force", session.name)
    return {"rounds": len(took), "begun_anew": len(lost), "restored_s": sorted(took)[len(took) // 2], "at_most_s": max(took)}


IN_BACKGROUND = {"claude": 'CALL Bash {"command": "sleep 345", "run_in_background": true, "description": "it sleeps"}',
                 "codex": 'CALL exec_command {"cmd": "sleep 345", "yield_time_ms": 500}'}


def kept(lab, _, check):
    """A session is not parked while that would lose an unsent draft or a background task."""
    session, said = lab.session("kept"), []
    session.send("hello")
    for what in ["draft", "background"]:
        if what == "draft":
            session.keys(*"half")
            session.wait("it is drawn", lambda: "half" in session.screen())
        else:
            number = session.send(IN_BACKGROUND[lab.kind], wait="queued")["id"]
            while session.message(number)["state"] not in OVER:
                if (session.show()["ask"] or {}).get("answerable"):
                    lab.poolctl("approve", session.name, may_fail=True)
            session.wait("it says so", lambda: re.search("1 (shell|background)", session.screen()))
        refused = lab.poolctl("park", session.name, may_fail=True)
        said.append(refused.stderr.decode().strip())
        check(refused.returncode == 4 and session.show()["lifecycle"] == "live", f"{what}: parked: {said[-1]}")
        if what == "draft":
            session.keys("C-c")
            session.wait("it is gone", lambda: "half" not in session.screen())
    lab.poolctl("park", "--force", session.name)
    return {"said": said}


def limit(lab, _, check):
    """A usage limit is reached: the prompt names it, the session says until when, and the next prompt waits."""
    session, began = lab.session("limited", "subscriber"), datetime.datetime.now(datetime.timezone.utc).isoformat()
    message = session.send("LIMIT is reached", seconds=40)
    ended(check, message, "dead")
    check("limit" in message["reason"], f"its reason: {message['reason']}")
    shown = session.wait_shown("it is limited", lambda shown: shown["limited_until"])
    ahead = between(began, shown["limited_until"])
    check(3600 - 70 <= ahead <= 3600 + 70, f"the limit is over in {ahead:.0f} s instead of an hour")
    shown = session.wait_shown("its slot is free", lambda shown: shown["lifecycle"] == "parked")
    check(shown["reason"] == "limited" and shown["limited_until"], f"it is parked ({shown['reason']}) until {shown['limited_until']}")
    number = session.send("and then", wait="queued")["id"]
    shown = session.wait_shown("it says why the next waits", lambda shown: shown["waits"])
    check("usage limit" in shown["waits"], f"it waits: {shown['waits']}")
    ended(check, session.message(number), "queued", what="the next")
    return {"then": told(shown), "until": shown["limited_until"]}


def limit_over(lab, _, check):
    """A limit of half a minute in a pinned session: the agent goes on once it is over, despite dialogs. Gemini CLI asks what to do, in its turn."""
    session = lab.session("short", "subscriber")
    lab.poolctl("pin", session.name)
    session.send("hello")
    began = time.monotonic()
    if lab.kind == "gemini":
        session.send("LIMIT 30 s", wait="queued")
        return asked(lab, session, check, "Usage limit reached")
    ended(check, session.send("LIMIT 30 s", seconds=40), "dead")
    ended(check, session.send("and then", seconds=300), what="the next")
    return {"after_s": round(time.monotonic() - began, 1), "limit_s": 30, "prompts": session.prompts()}


def asked(lab, session, check, text):
    """Checks that a question at the terminal that nothing reports is shown and listed."""
    shown = session.wait_shown("it asks", lambda shown: shown["ask"])
    check(shown["activity"] == "attention" and text in shown["ask"]["text"], f"it is {told(shown)}")
    check(session.name in lab.poolctl("inbox").stdout.decode(), "the inbox does not list it")
    return {"asks": shown["ask"]["text"]}


def unreported(lab, _, check):
    """A question that no hook reports, before the model is called: it is shown, and the turn goes on once it is answered."""
    session = lab.session("unreported")
    number = session.send(f"look at {TRACKED}", wait="queued")["id"]
    facts = asked(lab, session, check, "(Y)es")
    session.keys("n", "Enter")
    ended(check, session.wait_over(number))
    return facts


def outage(lab, _, check):
    """An outage of the service while three prompts wait: afterwards the first is continued, then the others follow in order."""
    session, out = lab.session("outage"), pathlib.Path(f"{lab.made}.outage")
    session.send("hello")
    out.write_text("500")
    try:
        numbers = [session.send(text, wait="queued")["id"] for text in ("1 refactor", "2 commit", "3 push")]
        patience = 300 if lab.kind == "gemini" else 120  # it tries again for more than three minutes before it reports that
        shown = session.wait_shown("it says why they wait", lambda shown: "tried again at" in (shown["waits"] or ""), patience)
        states = [session.message(number)["state"] for number in numbers]
        check(states == ["queued"] * 3, f"none is given up: {states}")
    finally:
        out.unlink()
    for number in numbers:
        ended(check, session.wait_over(number, 240))
    prompts = [text for text, _ in itertools.groupby(session.prompts())]
    check(prompts == ["hello", "1 refactor", "continue", "2 commit", "3 push"], f"what it got: {prompts}")
    return {"waited": shown["waits"]}


def startup(lab, _, check):
    """A start-up question holds the prompt back, is reported, and releases the prompt once answered."""
    session = lab.session("startup", place="untrusted")
    number = session.send("after the question", wait="queued")["id"]
    shown = session.wait_shown("why it waits", lambda shown: shown["ask"] and shown["waits"])
    check(shown["activity"] == "attention" and shown["ask"]["kind"] == "dialog", f"it is {told(shown)}")
    check("trust" in shown["ask"]["text"], f"it asks {shown['ask']}")
    ended(check, session.message(number), "queued")
    session.keys("Enter")
    ended(check, session.wait_over(number))
    return {"waits": shown["waits"], **alike(check, session, ["after the question"])}


def files(lab, _, check):
    """The user's own configuration is unchanged, and the user's own hooks run too."""
    before, session = digest(lab), lab.session("files")
    session.send("hello")
    check(digest(lab) == before, f"{lab.users_file} has changed")
    patterns = ("settings*.json", "hooks.json", "*.toml", ".claude.json")
    found = [path for pattern in patterns for top in (lab.home, lab.place("main")) for path in top.rglob(pattern)]
    installed = {lab.users_file} if lab.installs else set()
    ours = [str(path) for path in {*found} - installed if b"poolctl" in path.read_bytes()]
    check(not ours, f"the pool is named in {ours}")
    # It may run concurrently with the pool's.
    with contextlib.suppress(Failed):
        until("the user's own hook ran", 5, lab.hook_ran.exists)
    check(lab.hook_ran.exists(), "the user's own hook did not run")
    return {"looked_at": len(found)}


def digest(lab):
    """Digest of the user's own file; for Codex without the tables that Codex itself adds."""
    text = lab.users_file.read_text()
    tables = re.split(r"(?m)^(?=\[)", text) if lab.kind == "codex" else [text]
    return hashlib.sha256("".join(t for t in tables if not t.startswith(("[tui", "[notice"))).strip().encode()).hexdigest()


# Parts that an agent cannot pass, with the reason.
NOT_FOR = {"gemini": {
    "questions": "none of its hooks can answer a question",
    "interrupted": "its hook reports an interruption during the answer like any other end",
    "startup": "it restarts once its folder is trusted; a prompt typed meanwhile is lost, and stays `typed`",
    "permission": "none of its hooks can answer a permission request",
    "kept": "its model has no such tool, and background tasks are not reported",
    "limit": "it asks at its terminal what to do about a limit, and does not report its end",
}, "opencode": {
    "questions": "its questions are reported but cannot be answered from outside",
    "kept": "it runs nothing in the background",
    **dict.fromkeys(["limit", "limit_over"], "it retries by itself, and reports that"),
    "startup": "it asks nothing at its start",
    "files": "it writes into its user's configuration itself, and has no user hooks",
}, "aider": {
    **dict.fromkeys(["orphan", "kept"], "its model has no tools"),
    **dict.fromkeys(["permission", "questions"], "it asks only at its terminal"),
    **dict.fromkeys(["limit", "limit_over", "outage"], "it retries by itself without reporting it"),
    "interrupted": "it reports an interruption like any other end",
    "resumed": "it resumes the text of a conversation, which has no id",
    "startup": "it asks nothing at its start",
    "files": "it has no user hooks",
}}
PARTS = {part.__name__: part for part in
         (exact, killed, hogged, busy, interrupted, permission, questions, orphan, resumed, woken, afternoon, afternoon_killed, cut_off, kept, limit, limit_over, unreported, outage, startup, files)}
for agent in ("claude", "codex", "gemini", "opencode"):
    NOT_FOR.setdefault(agent, {})["unreported"] = "it calls its model before it asks"
