#!/usr/bin/env python3
"""sections.py NAME PAGE WIDTH SELECTOR: pictures of a part of a report, NAME.png and NAME-dark.png."""
import os
import sys
import tempfile

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

name, page, width, selector = sys.argv[1:]
options = webdriver.ChromeOptions()
options.binary_location = "/usr/bin/chromium"
with tempfile.TemporaryDirectory() as profile:
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--hide-scrollbars", "--user-data-dir=" + profile):
        options.add_argument(word)
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": int(width), "height": 1600, "deviceScaleFactor": 1, "mobile": False})
    for scheme, ending in (("light", ".png"), ("dark", "-dark.png")):
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                               {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        driver.get("file://" + os.path.abspath(page))
        driver.execute_script("document.querySelectorAll('.chooser, details').forEach(e => e.remove())")
        driver.find_element(By.CSS_SELECTOR, selector).screenshot(name + ending)
    driver.quit()
