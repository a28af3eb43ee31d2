"""Uses the page of `tightloop serve` as a person does, in a browser: asks, stops, edits, translates, scores, on a phone, in the dark, by keys alone.

usage: chat_page.py PROGRAM FOLDER     models are trained into FOLDER/runs where they are not there yet
Ends with status 77 where there is no Chromium.
"""
import contextlib
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import chat_replies
import chromium
from chat_looks import check_keyboard, check_looks, check_phone
from chat_markdown import HELPERS, check_markdown

KEY = "a-key-of-the-test"
LAST = "document.querySelector('.message:last-of-type')"
TEXT = f"({LAST}.querySelector('.prose:not(.thinking .prose)')?.textContent ?? '')"


def check(what, is_so, more=""):
    if not is_so:
        sys.exit(f"chat_page.py: {what} is not so. {more}")
    print(f"ok  {what}", flush=True)


class Server:
    """tightloop serve with some options; `url` is where it listens."""

    def __init__(self, program, folder, *options):
        self.options = [program, "serve", "--model", "runs/parrot", "--model", "runs/base", "--model", "toy=runs/toy", *options]
        self.folder = folder
        self.start("0")

    def start(self, port):
        self.process = subprocess.Popen([*self.options, "--port", port], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().strip()
        # The address is said when the models are there, and then it answers.
        with urllib.request.urlopen(self.url + "/health", timeout=60):
            pass

    def again(self):
        self.start(self.url.rsplit(":", 1)[1])

    def metric(self, name):
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as answer:
            return sum(float(line.rsplit(" ", 1)[1]) for line in answer.read().decode().splitlines() if line.startswith(name + "{"))

    def answers(self, question, **sampling):
        """The answer without a page, and how many tokens it has."""
        body = json.dumps({"model": "parrot", "messages": [{"role": "user", "content": question}], **sampling}).encode()
        with urllib.request.urlopen(self.url + "/v1/chat/completions", body, timeout=120) as answer:
            got = json.load(answer)
        return got["choices"][0]["message"]["content"], got["usage"]["completion_tokens"]

    def says(self, question):
        return self.answers(question, temperature=0)[0]

    def hold(self, made):
        """Stops the process when it has made this many tokens and some: a slow browser sees it in the middle of an answer, too."""
        while self.metric("tightloop_made_tokens_total") < made + 30:
            pass
        self.process.send_signal(signal.SIGSTOP)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def open_page(page, server):
    page.open(server.url + "/")
    page.wait("models.length > 0 || !byId('problem').hidden")
    page.eval(HELPERS)


def ask(page, question, wait=True):
    page.eval("byId('question').focus()")
    page.write(question)
    page.key("Enter")
    if wait:
        page.wait("!talk.running", 120)


def fill_in(page, **fields):
    """The form of the settings, as a user fills it in."""
    page.eval("byId('settings-open').click()")
    for name, text in fields.items():
        page.eval(f"byId('settings').querySelector('details').open = true; byId('set-{name}').focus(); byId('set-{name}').select()")
        page.write(text)
    page.key("Escape")
    check(f"settings are kept: {fields}", page.eval("!byId('settings').open") and all(page.eval(f"JSON.parse(localStorage['tightloop.settings']).{name}") == text for name, text in fields.items()))


def check_wrong_settings(page):
    page.eval("byId('settings-open').click()")
    for name, text, wrong in (("temperature", "9", "Temperature: "), ("seed", "1.5", "Seed: "), ("tools", "not JSON", "Tools: ")):
        page.eval(f"byId('settings').querySelector('details').open = true; byId('set-{name}').focus()")
        page.write(text)
        page.eval("byId('settings').querySelector('details').open = false; byId('set-top_k').focus(); byId('settings-close').click()")
        problem = page.eval("byId('settings-problem').textContent")
        check(f"Done keeps a wrong {name} in view and says why", page.eval("byId('settings').open && document.activeElement.id") == f"set-{name}" and page.eval("document.activeElement.getAttribute('aria-invalid')") == "true" and problem.startswith(wrong) and len(problem) > len(wrong) + 5, problem)
        page.eval(f"byId('set-{name}').value = ''; byId('set-{name}').dispatchEvent(new Event('input'))")
    page.eval("byId('settings-close').click()")
    check("Done closes when all is right", page.eval("!byId('settings').open && byId('settings-problem').textContent === '' && [settings.temperature, settings.seed, settings.tools].join('') === ''"))


def check_lone_thought(page):
    page.eval("newConversation()")
    fill_in(page, max_tokens="8")
    ask(page, "What is six times seven?")
    note = page.eval(f"{LAST}.querySelector('.note').textContent")
    check("an answer that is only a thought says so, and why", page.eval(TEXT) == "" and note.startswith("No answer behind the thought. Cut off: "), note)
    page.eval("settings.max_tokens = ''; saveSettings(); conversations.remove(talk.conversation.id); newConversation()")


def check_stream(page, server):
    fill_in(page, temperature="0")
    page.eval("byId('question').focus()")
    page.write("Tell me")
    page.key("Enter", shift=True)
    check("Shift and Enter begin a line", page.eval("byId('question').value") == "Tell me\n" and page.eval("talk.conversation.messages.length") == 0)
    page.eval("byId('question').value = ''")

    page.eval(f"window.lengths = []; window.watching = new MutationObserver(() => lengths.push({TEXT}.length)); watching.observe(byId('messages'), {{ subtree: true, childList: true, characterData: true }})")
    ask(page, "Tell me a story.")
    seen = sorted(set(page.eval("watching.disconnect() ?? lengths")))
    check("the answer grows", len(seen) > 3, str(seen))
    story = server.says("Tell me a story.")
    check("it is what the model says", len(story) > 500 and page.eval(TEXT) == story, page.eval(TEXT))
    stats = page.eval(f"{LAST}.querySelector('.stats').textContent")
    check("tokens and times are under it", all(word in stats for word in (" tokens ·", "tokens/s", "first after")) and "about" not in stats, stats)
    kept = page.eval("talk.conversation.messages[1].stats")
    check("and are right", kept["tokens"] == server.answers("Tell me a story.", temperature=0)[1] and 0 < kept["first"] <= kept["seconds"]
          and abs(float(re.search(r"([\d,.]+) tokens/s", stats)[1].replace(",", "")) * kept["seconds"] / kept["tokens"] - 1) < 0.01, f"{kept} {stats}")
    check("it is said aloud in sentences", page.eval("byId('spoken').textContent").strip().endswith("Then it could talk."))


def check_stop(page, server):
    # Hot, a model rambles on for long.
    seed, text, whole = next((seed, text, tokens) for seed in range(100) for text, tokens in [server.answers("Tell me a story.", temperature=2, seed=seed)] if tokens > 350)
    made = server.metric("tightloop_made_tokens_total")
    fill_in(page, temperature="2", seed=str(seed))
    page.eval("newConversation()")
    ask(page, "Tell me a story.", wait=False)
    server.hold(made)
    page.wait(f"{TEXT}.length > 10")
    page.key("Escape")
    check("Escape stops it", page.eval("!talk.running && byId('stop').hidden"))
    check("and it says so", page.eval(f"{LAST}.querySelector('.note').textContent") == "Stopped by you")
    stopped = page.eval(TEXT)
    check("what had come stays", page.eval("talk.conversation.messages.length") == 2 and 10 < len(stopped) < len(text), stopped)
    server.process.send_signal(signal.SIGCONT)
    until = time.time() + 20
    while server.metric("tightloop_running") and time.time() < until:
        time.sleep(0.05)
    cost = server.metric("tightloop_made_tokens_total") - made
    check("the server stops, too", cost < whole, f"{cost} of {whole}")

    page.eval(f"[...{LAST}.querySelectorAll('button')].find((one) => one.textContent === 'Regenerate').click()")
    page.wait("!talk.running", 120)
    check("regenerating takes its place", page.eval("talk.conversation.messages.length") == 2 and "you" not in page.eval(f"{LAST}.querySelector('.note').textContent") and page.eval(f"{TEXT}.length") > len(stopped))
    fill_in(page, temperature="0", seed="5")
    page.eval("[...document.querySelectorAll('.message.user button')].find((one) => one.textContent === 'Edit').click()")
    page.eval("document.activeElement.select()")
    page.write("Hello")
    page.key("Enter")
    page.wait("!talk.running", 120)
    check("an edited question cuts the conversation there", page.eval("talk.conversation.messages.map((one) => one.content)") == ["Hello", server.says("Hello")], str(page.eval("talk.conversation.messages")))
    return str(seed)


def check_answers(page):
    page.eval("newConversation()")
    ask(page, "How does a tokenizer work?")
    shape = page.eval(f"['h4', 'strong', 'ol > li', 'ul > li', 'table tbody tr', 'blockquote', 'pre'].map((what) => {LAST}.querySelectorAll(what).length)")
    check("markdown becomes headings, lists, tables and code", shape == [1, 1, 3, 2, 2, 1, 1], str(shape))
    page.eval(f"{LAST}.querySelector('.code button').click()")
    page.wait(f"{LAST}.querySelector('.code button').textContent === 'Copied'")
    check("code can be copied", page.eval("navigator.clipboard.readText()") == "def pairs(ids):\n    return list(zip(ids, ids[1:]))")
    page.eval(f"{LAST}.querySelector('footer button').click()")
    page.wait(f"{LAST}.querySelector('footer button').textContent === 'Copied'")
    check("so can the answer", page.eval("navigator.clipboard.readText()") == page.eval("talk.conversation.messages[1].content") != "")

    page.eval("newConversation()")
    ask(page, "What is six times seven?")
    check("thoughts are folded away", page.eval(f"(() => {{ const one = {LAST}.querySelector('.thinking'); return !one.hidden && !one.open; }})()")
          and page.eval(f"{LAST}.querySelector('summary').textContent").startswith("Thought for"))
    check("and apart from the answer", page.eval(TEXT) == "The answer is 42." and page.eval(f"{LAST}.querySelector('.thinking .prose').textContent.trim()") == "Six times seven is 42.")


def check_tools(page):
    page.eval("newConversation()")
    fill_in(page, tools=json.dumps(chat_replies.WEATHER))
    ask(page, "Weather in Rome?")
    call = page.eval(f"[...{LAST}.querySelectorAll('.call')].map((one) => [one.querySelector('summary code').textContent, JSON.parse(one.querySelector('pre').textContent)])")
    check("a call of a tool is shown", call == [["weather", {"city": "Rome"}]], str(call))
    page.eval(f"{LAST}.querySelector('.result textarea').focus()")
    page.write("21 degrees")
    page.eval(f"{LAST}.querySelector('.result button').click()")
    page.wait("!talk.running", 120)
    check("what it gave back is answered", page.eval(TEXT) == "It has 21 degrees.", page.eval(TEXT))
    page.eval("settings.tools = ''; saveSettings()")


def check_base(page, server):
    page.eval("newConversation(); byId('model').value = 'base'; byId('model').dispatchEvent(new Event('change'))")
    check("a model without a chat form is offered texts", "text" in page.eval("byId('question').placeholder") and "no chat template" in page.eval("byId('welcome-help').textContent"))
    ask(page, "The cat")
    body = json.dumps({"model": "base", "prompt": "The cat", "temperature": 0}).encode()
    with urllib.request.urlopen(server.url + "/v1/completions", body, timeout=120) as answer:
        expected = json.load(answer)["choices"][0]["text"]
    check("and goes on with one", len(expected) > 5 and page.eval("talk.conversation.messages[1].content") == expected and any(url.endswith("/v1/completions") for url in page.requests), page.eval(TEXT))
    page.eval("byId('model').value = 'parrot'; byId('model').dispatchEvent(new Event('change'))")


def check_hostile(page, server):
    page.eval("newConversation()")
    ask(page, "Show me something hostile.")
    check("the model said it", page.eval("talk.conversation.messages[1].content") == server.says("Show me something hostile."), page.eval("talk.conversation.messages[1].content"))
    check("it is shown as it was written", "<img src=x onerror=\"window.stolen=1\"> <script>" in page.eval(TEXT) and "[a](javascript:window.stolen=3)" in page.eval(TEXT))
    wrong = page.eval(f"wrongIn({LAST}.querySelector('.prose:not(.thinking .prose)'))")
    check("nothing of it counts as HTML", not wrong and page.eval("window.stolen === undefined && document.scripts.length === 1 && !document.images.length"), str(wrong))
    check("an unclosed fence stays within the answer", page.eval("!byId('question').closest('.message') && document.querySelectorAll('.composer').length === 1"))
    page.eval("byId('question').focus()")
    for hostile in ("<img src=x onerror=window.stolen=8>", "</textarea><script>window.stolen=9</script>"):
        page.write(hostile)
    page.key("Enter")
    page.wait("!talk.running", 120)
    check("nor does what one types oneself", page.eval("window.stolen === undefined && !document.images.length"))


def check_conversations(page, program, folder):
    count = page.eval("conversations.list().length")
    check("conversations are listed", count == 7 and page.eval("document.querySelectorAll('#list li').length") == count, str(count))
    page.eval("document.querySelectorAll('#list .open')[4].click()")
    check("one can be opened", page.eval("document.querySelector('.message .plain').textContent") == "How does a tokenizer work?")
    page.eval("location.reload()")
    page.wait("typeof talk !== 'undefined' && document.readyState === 'complete' && talk.views.length > 0 && models.length > 0")
    page.eval(HELPERS)
    check("it is there after a reload, with the settings", page.eval("document.querySelector('.message .plain').textContent") == "How does a tokenizer work?" and page.eval("settings.temperature") == "0")

    with tempfile.TemporaryDirectory() as downloads:
        page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=downloads)
        page.eval("byId('export-all').click()")
        file, until = pathlib.Path(downloads) / "conversations.jsonl", time.time() + 20
        while not file.exists() and time.time() < until:
            time.sleep(0.1)
        lines = [json.loads(line)["messages"] for line in file.read_text().splitlines()]
        check("all are exported", len(lines) == count and [turn["role"] for turn in lines[-1]] == ["user", "assistant"], str(lines))
        form = ["--chat.form", "qwen3", "--tokenizer.path", folder / "runs/parrot/tokenizer"]
        recipe = pathlib.Path(__file__).resolve().parents[2] / "configs/finetune.yaml"
        read = subprocess.run([program, "data", "check", recipe, "--train.stage", "base", "--data.train", file, *form, "--data.holdout", "0"], capture_output=True, text=True, cwd=folder)
        check("training reads them", read.returncode == 0 and f"{count} " in read.stdout + read.stderr, read.stdout + read.stderr)

    page.eval("document.querySelector('#list .delete').click()")
    check("one can be deleted", page.eval("conversations.list().length") == count - 1)
    page.eval("byId('note').querySelector('button').click()")
    check("and had back", page.eval("conversations.list().length") == count)


def check_translation(page):
    page.eval("byId('tab-translate').click()")
    check("the tab shows its panel alone", page.eval("!byId('panel-translate').hidden && byId('panel-chat').hidden && byId('panel-losses').hidden && byId('model').value === 'toy'"))
    page.eval("byId('source').focus()")
    page.write("a small red dog sees the old cats.\n\nthe cats sleep.")
    page.key("Enter", control=True)
    page.wait("!byId('translations').hidden && !translating.controller", 60)
    all_rows = page.eval("[...document.querySelectorAll('#translations tbody tr')].map((row) => [row.cells[0].textContent, row.cells[1].firstChild.textContent, row.cells[2].textContent])")
    check("a blank line stays blank", len(all_rows) == 3 and all_rows[1][0] == all_rows[1][2] == "", str(all_rows))
    rows = all_rows[::2]
    expected = page.eval("(async () => (await (await fetch('translate', {method: 'POST', body: JSON.stringify({model: 'toy', text: ['a small red dog sees the old cats.', 'the cats sleep.'], beam: 5})})).json()).translations)()")
    check("each line has its translation and score", [row[1:] for row in rows] == [[one["text"], f"{one['score']:.2f}"] for one in expected], f"{rows} {expected}")
    check("other translations are folded", page.eval("document.querySelectorAll('#translations details:not([open]) li').length") == 4)


def check_losses(page):
    page.eval("byId('tab-losses').click(); byId('scored').focus()")
    text = "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n" + chat_replies.STORY[:120] + " Grün 🙂🙂\n<b>zebra"
    page.write(text)
    page.key("Enter", control=True)
    page.wait("!byId('losses-result').hidden && !scoring.controller", 60)
    tokens = page.eval("scoring.tokens")
    groups, part = [], b""
    for token in tokens:
        if not part:
            groups.append([])
        groups[-1].append(token)
        part += bytes(token.get("bytes", []))
        with contextlib.suppress(UnicodeDecodeError):
            part.decode()
            part = b""
    check("the text has characters of several tokens", sum(len(group) > 1 for group in groups) == 3, str(groups))
    texts = page.eval("[...document.querySelectorAll('#heat .token')].map((one) => one.textContent)")
    check("which stand there whole", [text for text, group in zip(texts, groups) if len(group) > 1] == ["ü", "🙂", "🙂"], str(texts))
    sums = [sum(token["loss"] for token in group) if group[0]["loss"] is not None else None for group in groups]
    heats = page.eval("[...document.querySelectorAll('#heat .token')].map((one) => one.style.getPropertyValue('--heat'))")
    check("each token has its heat", len(groups) == len(heats) > 10 and all(heat == (f"{max(0, min(loss, 8)) / 8 * 100:.1f}%" if loss is not None else "") for heat, loss in zip(heats, sums)), f"{heats} {sums}")
    known = [token["loss"] for token in tokens if token["loss"] is not None]
    check("the mean is that of the tokens", page.eval("byId('loss-numbers').querySelectorAll('dd')[1].textContent") == f"{sum(known) / len(known):.3f}")
    check("a token that is expected is cold, one that is not is hot", sum(float(heat.rstrip("%") or 100) < 10 for heat in heats) > 8 and max(float(heat.rstrip("%") or 0) for heat in heats) > 40, str(heats))
    page.eval("byId('heat').focus()")
    for _ in range(3):
        page.key("ArrowRight")
    tip = page.eval("byId('tip').hidden ? '' : byId('tip').textContent")
    check("arrow keys show a token's numbers", f"{tokens[3]['loss']:.3f}" in tip and str(tokens[3]["id"]) in tip, tip)
    box = page.eval("(() => { const box = byId('heat').children[5].getClientRects()[0]; return { x: box.left + 2, y: box.top + 5 }; })()")
    page.mouse("mouseMoved", box["x"], box["y"])
    page.settle()
    check("so does pointing at it", str(tokens[5]["id"]) in page.eval("byId('tip').textContent"))
    at = texts.index("🙂")
    page.eval(f"showTip({at})")
    tip = page.eval("byId('tip').textContent")
    check("a character of several tokens has the loss of each", all(f"{token['loss']:.3f}" in tip and str(token["id"]) in tip for token in groups[at]), tip)


def check_errors(page, server, rambling):
    page.eval("byId('tab-chat').click(); newConversation()")
    problem = "byId('problem').textContent"
    ask(page, "word " * 3000)
    check("what is too long is said", "tokens" in page.eval(problem) and "New conversation" in page.eval(problem), page.eval(problem))
    page.eval("newConversation()")
    server.__exit__()
    ask(page, "Hello")
    check("a server that is gone is said", "does not answer" in page.eval(problem), page.eval(problem))
    server.again()
    page.eval("location.reload()")
    page.wait("typeof talk !== 'undefined' && document.readyState === 'complete' && talk.views.length > 0 && models.length > 0")
    again = "[...document.querySelectorAll('.message:last-of-type button')].find((one) => one.textContent === 'Try again')"
    check("the question is there after a reload", page.eval("talk.conversation.messages.length === 1 && byId('problem').hidden"))
    page.eval(f"{again}.click()")
    page.wait("!talk.running && talk.conversation.messages.length === 2", 120)
    check("and can be asked again", page.eval(TEXT) == server.says("Hello") and not page.eval(f"!!({again})"))
    page.eval("newConversation()")
    server.__exit__()
    ask(page, "Hello")
    server.again()
    page.eval("[...byId('problem').querySelectorAll('button')].find((one) => one.textContent === 'Try again').click()")
    page.wait("!talk.running", 120)
    check("and asked again when it is back", page.eval(TEXT) == server.says("Hello") and page.eval("byId('problem').hidden"), page.eval(problem))
    fill_in(page, temperature="2", seed=rambling)
    page.eval("newConversation()")
    made = server.metric("tightloop_made_tokens_total")
    ask(page, "Tell me a story.", wait=False)
    server.hold(made)
    page.wait(f"{TEXT}.length > 10")
    server.process.kill()
    page.wait("!talk.running", 60)
    check("a stream that breaks off keeps what had come", page.eval(f"{TEXT}.length") > 10 and "broke off" in page.eval(problem), page.eval(problem))
    server.again()


def check_key(page, program, folder):
    (folder / "key.txt").write_text(KEY + "\n")
    (folder / "key.txt").chmod(0o600)
    with Server(program, folder, "--api-key-file", "key.txt", "--queue", "0", "--running", "1") as server:
        open_page(page, server)
        check("a server with a key asks for it", "asks for a key" in page.eval("byId('problem').textContent") and page.eval("document.activeElement.type") == "password")
        page.write("wrong")
        page.key("Enter")
        page.wait("byId('problem').textContent.includes('does not take this key')")
        check("a wrong key is said in words", "Settings" in page.eval("byId('problem').textContent") and "Bearer" not in page.eval("byId('problem').textContent"), page.eval("byId('problem').textContent"))
        page.write(KEY)
        page.key("Enter")
        page.wait("models.length === 3 && byId('problem').hidden")
        check("and takes the right one", page.eval("byId('model').value") == "parrot")
        check("which is kept for this tab alone", page.eval("!JSON.stringify(localStorage).includes(apiKey()) && sessionStorage.getItem('tightloop.key') !== null"))
        ask(page, "Hello")
        check("then it answers", bool(page.eval(TEXT)))
        with crowd(server.url):
            until = time.time() + 60
            while "Try again in" not in page.eval("byId('problem').textContent") and time.time() < until:
                page.eval("newConversation()")
                ask(page, "Hello")
            check("a busy server says when to try again", "Try again in" in page.eval("byId('problem').textContent"), page.eval("byId('problem').textContent"))


@contextlib.contextmanager
def crowd(url):
    """Others who ask again and again."""
    body, enough = json.dumps({"model": "parrot", "prompt": "Once", "max_tokens": 700, "ignore_eos": True}).encode(), threading.Event()

    def insist():
        while not enough.is_set():
            try:
                with urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", body, {"Authorization": f"Bearer {KEY}"}), timeout=60) as answer:
                    answer.read()
            except urllib.error.HTTPError:
                time.sleep(0.02)

    threads = [threading.Thread(target=insist) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        enough.set()
        for thread in threads:
            thread.join()


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    if not chromium.find():
        print("no Chromium here: apt-get install chromium")
        sys.exit(77)
    folder.mkdir(exist_ok=True)
    chat_replies.train(program, folder)
    with chromium.Page() as page, Server(program, folder) as server:
        page.colours("light")
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        open_page(page, server)
        page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"], origin=server.url)
        check_markdown(page, check)
        check_wrong_settings(page)
        check_stream(page, server)
        rambling = check_stop(page, server)
        check_answers(page)
        check_lone_thought(page)
        check_tools(page)
        check_base(page, server)
        check_hostile(page, server)
        check_conversations(page, program, folder)
        check_translation(page)
        check_losses(page)
        check_looks(page, check)
        check_phone(page, check)
        check_keyboard(page, check, server.url)
        check("no script failed", not page.problems, str(page.problems))
        check("nothing left this server", all(url.startswith((server.url + "/", "blob:" + server.url)) for url in page.requests), str(set(page.requests)))
        check_errors(page, server, rambling)
        check_key(page, program, folder)
        refused = [text for text in page.problems if "Failed to load resource" not in text]
        check("still no script failed", not refused, str(refused))
        check("the browser refuses text as HTML", page.eval("(() => { try { document.body.innerHTML = '<i>'; return false; } catch { return true; } })()"))


main()
