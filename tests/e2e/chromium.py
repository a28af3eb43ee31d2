"""Drives a headless Chromium through its DevTools pipe, with Python's standard library alone."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find():
    """The browser's path; None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """One page. What it logs, throws or asks of the network is in `problems` and `requests`."""

    def __init__(self, width=1280, height=900):
        # Helpers of the browser may still write for a moment when it is gone.
        self.profile = tempfile.TemporaryDirectory(prefix="tightloop-chromium-", ignore_cleanup_errors=True)
        their_in, self.write_end = os.pipe()
        self.read_end, their_out = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                   "--disable-background-networking", "--disable-extensions", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}"]
        # The browser reads commands from descriptor 3 and writes to 4.
        self.process = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{their_in} 4>&{their_out}', "bash", find(), *options, "about:blank"],
                                        pass_fds=(their_in, their_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(their_in), os.close(their_out)
        self.buffer, self.number, self.session = b"", 0, None
        self.problems, self.requests = [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.read_end), os.close(self.write_end)
        self.profile.cleanup()

    def message(self, seconds=60):
        until = time.time() + seconds
        while b"\0" not in self.buffer:
            if not select.select([self.read_end], [], [], max(0, until - time.time()))[0]:
                raise TimeoutError("the browser does not answer")
            got = os.read(self.read_end, 1 << 20)
            if not got:
                raise RuntimeError("the browser ended")
            self.buffer += got
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.write_end, json.dumps(request).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.note(message)

    def note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def eval(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", "failed") + "\n  in " + expression)
        return result["result"].get("value")

    def wait(self, expression, seconds=60):
        until = time.time() + seconds
        while not self.eval(expression):
            if time.time() > until:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.05)

    def settle(self):
        """Until what was asked for is drawn."""
        self.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def resize(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=width < 500)

    def colours(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", **more)

    def key(self, name, shift=False, control=False):
        """A key that is pressed and released; what it writes, it writes."""
        code = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, " ": 32}.get(name)
        text = {"Enter": "\r"}.get(name, name if len(name) == 1 else "")
        more = {"modifiers": 8 * shift + 2 * control, **({"windowsVirtualKeyCode": code} if code else {})}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, **more, **({"text": text} if text and kind == "keyDown" else {}))

    def write(self, text):
        """Into what has the focus, as a keyboard does."""
        self.call("Input.insertText", text=text)

    def picture(self, file, clip=None):
        more = {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True} if clip else {}
        with open(file, "wb") as out:
            out.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"]))
