"""Chromium, without a window, for the tests of pages."""

import json
import os
import platform
import shutil
import sys

import pytest

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
# There is no Chrome for Linux on arm64.
REQUIRED = os.environ.get("CI") and sys.platform == "linux" and platform.machine() == "x86_64"
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
WINDOWS = [(width, scheme) for width in (390, 1280) for scheme in ("light", "dark")]
HEIGHT = 800
LOADED = "return location.href === arguments[0] && document.readyState === 'complete'"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if not (BROWSER and DRIVER):
        reason = "there is no chromium with its chromedriver here"
        pytest.fail(reason) if REQUIRED else pytest.skip(reason)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    driver.get("about:blank")  # its own first page asks for pictures of its own
    yield driver
    driver.quit()


def show(chromium, page, width, scheme):
    from selenium.webdriver.support.wait import WebDriverWait

    screen = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    chromium.get("about:blank")  # or the page before, which may have the same address, may answer
    for log in ("browser", "performance"):
        chromium.get_log(log)  # empties it
    chromium.get(page)
    WebDriverWait(chromium, 60).until(lambda driver: driver.execute_script(LOADED, page))


def asked_for(chromium):
    """The addresses that the browser has asked for since `show`."""
    messages = [json.loads(one["message"])["message"] for one in chromium.get_log("performance")]
    return [
        one["params"]["request"]["url"]
        for one in messages
        if one["method"] == "Network.requestWillBeSent"
    ]
