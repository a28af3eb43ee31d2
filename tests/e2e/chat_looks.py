"""How the chat page looks and feels: light and dark, a phone, the keyboard."""
import json

PIXEL = """window.pixel = (colour) => { const drawn = document.createElement('canvas').getContext('2d'); drawn.fillStyle = colour; drawn.fillRect(0, 0, 1, 1); return [...drawn.getImageData(0, 0, 1, 1).data]; };
window.over = ([r, g, b, a], under) => [r, g, b].map((c, i) => (c * a + under[i] * (255 - a)) / 255);
window.luminance = (rgb) => { const [r, g, b] = rgb.map((c) => { const part = c / 255; return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
window.backdrop = (one) => { const layers = []; for (let at = one; at; at = at.parentElement) { const c = pixel(getComputedStyle(at).backgroundColor); layers.push(c); if (c[3] === 255) break; } return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]); };
window.contrast = (one) => { const behind = backdrop(one), [a, b] = [luminance(over(pixel(getComputedStyle(one).color), behind)), luminance(behind)]; return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); };"""
SHOWN = "(one) => one.getClientRects().length > 0 && getComputedStyle(one).visibility === 'visible'"


def check_looks(page, check):
    page.eval(PIXEL)
    for width in (360, 620, 768, 1280):
        page.resize(width, 800)
        for tab in ("chat", "translate", "losses"):
            page.eval(f"byId('tab-{tab}').click()")
            page.settle()
            wide = page.eval("document.documentElement.scrollWidth")
            check(f"{tab} fits {width} pixels", wide <= width, str(wide))
    page.resize(1280, 900)
    pages = {}
    for scheme in ("light", "dark"):
        page.colours(scheme)
        page.settle()
        pages[scheme] = page.eval("luminance(backdrop(document.body))")
        for tab in ("chat", "translate", "losses"):
            page.eval(f"byId('tab-{tab}').click(); hideTip()")
            page.settle()
            low = page.eval(f"""[...document.querySelectorAll('button, p, li, td, th, h1, h3, h4, label, dt, dd, .token, summary, code, a, .stats')].filter({SHOWN}).filter((one) => one.textContent.trim() && !one.disabled)
                .map((one) => [one.className || one.tagName, Math.round(contrast(one) * 100) / 100]).filter(([, ratio]) => ratio < 4.5).slice(0, 5)""")
            check(f"text of {tab} can be read in {scheme}", not low, str(low))
        ramp = page.eval("[...document.querySelectorAll('#legend .token')].map((one) => luminance(backdrop(one)))")
        check(f"the heat map's steps differ in brightness in {scheme}", all(abs(a - b) > 0.01 for a, b in zip(ramp, ramp[1:])) and (sorted(ramp) == ramp or sorted(ramp) == ramp[::-1]), str(ramp))
    check("light is light and dark is dark", pages["light"] > 0.8 and pages["dark"] < 0.05, str(pages))
    page.colours("light")
    page.eval("byId('theme').click()")
    check("the button changes the colours", page.eval("luminance(backdrop(document.body))") < 0.05 and page.eval("settings.theme") == "dark")
    page.eval("byId('theme').click(); byId('theme').click()")
    check("and gives them back", page.eval("luminance(backdrop(document.body))") > 0.8 and page.eval("settings.theme") == "")
    unnamed = page.eval("""[...document.querySelectorAll('button, select, input, textarea, [tabindex="0"], [role=region]')].filter((one) =>
        !one.getAttribute('aria-label') && !one.textContent.trim() && !one.labels?.length && !one.getAttribute('aria-labelledby')).map((one) => one.outerHTML.slice(0, 80))""")
    check("everything that can be used has a name", not unnamed, str(unnamed))


def check_phone(page, check):
    page.resize(360, 740)
    page.eval("byId('tab-chat').click(); choose(conversations.list().find((one) => one.title.startsWith('How does')).id)")
    page.settle()
    small = "[...document.querySelectorAll('button, select, input, textarea, summary')].filter(%s).map((one) => [one.id || one.textContent || one.className, ...['width', 'height'].map((side) => one.getBoundingClientRect()[side])]).filter(([, width, height]) => Math.min(width, height) < 43.9)" % SHOWN
    check("everything can be hit with a finger", not page.eval(small), str(page.eval(small)))
    page.wait("byId('side').getBoundingClientRect().right <= 0")
    check("the list is out of the way", True)
    page.eval("byId('side-open').focus()")
    page.key("Enter")
    page.wait("byId('side').getBoundingClientRect().left === 0")
    check("it opens over the page", page.eval("byId('page').inert && document.activeElement.id === 'new'") and not page.eval(small), str(page.eval(small)))
    page.key("Escape")
    page.wait("byId('side').getBoundingClientRect().right <= 0")
    check("and closes again", page.eval("!byId('page').inert && document.activeElement.id === 'side-open'"))
    page.eval("byId('settings-open').click()")
    page.settle()
    check("settings fit a phone", page.eval("byId('settings').scrollWidth <= byId('settings').clientWidth") and not page.eval(small), str(page.eval(small)))
    # A menu's arrow takes some room, too.
    cut = page.eval(f"""(() => {{ const pen = document.createElement('canvas').getContext('2d');
        return [...byId('settings').querySelectorAll('input, select')].filter({SHOWN}).map((one) => {{ const style = getComputedStyle(one), menu = one.tagName === 'SELECT'; pen.font = `${{style.fontSize}} ${{style.fontFamily}}`;
            const text = menu ? one.selectedOptions[0].textContent : one.placeholder; return [text, pen.measureText(text).width + (menu ? 20 : 0), one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)]; }}).filter(([, needs, has]) => needs > has); }})()""")
    check("nothing in their fields is cut off", not cut, str(cut))
    page.eval("byId('settings').close()")
    for tab in ("translate", "losses"):
        page.eval(f"byId('tab-{tab}').click()")
        page.settle()
        check(f"a phone is told of no keys in {tab}", not page.eval(f"document.querySelector('#panel-{tab}').innerText.includes('Ctrl')"))
        check(f"fingers can use {tab}", not page.eval(small), str(page.eval(small)))
    page.eval("byId('tab-chat').click()")
    page.resize(1280, 900)


def check_keyboard(page, check, url):
    """No pointer and no script: a question, the settings, another tab and a new conversation, by keys."""
    page.open(url + "/")
    page.wait("models.length > 0")
    check("the question has the focus at once", page.eval("document.activeElement.id") == "question")
    page.eval("document.activeElement.blur()")
    focus = "(() => { const one = document.activeElement; return one.id || one.className || one.tagName; })()"
    order, outlines = [], []
    for _ in range(60):
        page.key("Tab")
        order.append(page.eval(focus))
        outlines.append(page.eval("(() => { const style = getComputedStyle(document.activeElement), field = document.activeElement.closest('.field'); return style.outlineStyle !== 'none' || (field && getComputedStyle(field).boxShadow !== 'none'); })()"))
        if order.count(order[0]) > 1:
            break
    wanted = ["new", "open", "export", "export-all", "skip", "tab-chat", "settings-open", "theme", "question"]
    places = [order.index(one) if one in order else -1 for one in wanted]
    check("Tab goes through the page in order", -1 not in places and places == sorted(places), json.dumps(order))
    check("and shows where it is", all(seen for one, seen in zip(order, outlines) if one != "BODY"), str(list(zip(order, outlines))))

    def tab_to(name):
        for _ in range(60):
            if page.eval(focus) == name:
                return
            page.key("Tab")
        check(f"Tab reaches {name}", False, page.eval(focus))

    tab_to("new")
    page.key("Enter")
    check("a new conversation begins with a key", page.eval("document.activeElement.id === 'question' && !talk.conversation.messages.length"))
    page.write("Hello")
    page.key("Enter")
    page.wait("!talk.running && talk.conversation.messages.length === 2", 120)
    check("a question is asked with keys alone", page.eval("document.activeElement.id") == "question")
    tab_to("settings-open")
    page.key("Enter")
    tab_to("set-seed")
    page.write("7")
    page.key("Escape")
    check("a setting is changed with keys alone", page.eval("settings.seed === '7' && document.activeElement.id === 'settings-open'"), page.eval(focus))
    tab_to("tab-chat")
    page.key("ArrowRight")
    check("arrows go from tab to tab", page.eval("document.activeElement.id === 'tab-translate' && !byId('panel-translate').hidden"))
    page.key("ArrowLeft")
    check("and back", page.eval("document.activeElement.id === 'tab-chat' && !byId('panel-chat').hidden"))
