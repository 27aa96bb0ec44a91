#!/usr/bin/env python3
"""report_browser.py PAGE...: opens pages from disk in Chromium, light and dark, wide and narrow; tries read-out, zoom and
the choice of runs."""
import os
import sys

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.chrome.service import Service


def start():
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--user-data-dir=" + os.path.abspath("browser")):
        options.add_argument(word)
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def shown(driver, page, width, scheme):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                           {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    driver.get("file://" + os.path.abspath(page))
    errors = [entry for entry in driver.get_log("browser")]
    assert not errors, f"{page}: {errors}"
    wide = driver.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width, f"{page}: {wide} pixels wide on a screen of {width}"
    assert len(driver.get_screenshot_as_png()) > 5000
    return driver.execute_script("return getComputedStyle(document.body).backgroundColor")


def overlaps(driver):
    """Labels of one axis that cover each other."""
    return driver.execute_script("""
        var bad = [];
        document.querySelectorAll('svg.plot').forEach(function (svg) {
            var boxes = [].map.call(svg.querySelectorAll('.tx text, .ty'), function (t) {
                return [t.getBoundingClientRect(), t.textContent]; });
            boxes.forEach(function (a, i) { boxes.slice(i + 1).forEach(function (b) {
                if (a[0].left < b[0].right - 1 && b[0].left < a[0].right - 1 && a[0].top < b[0].bottom - 3 &&
                    b[0].top < a[0].bottom - 3) bad.push(svg.getAttribute('aria-label') + ': ' + a[1] + ' and ' + b[1]); }); });
        });
        return bad;""")


def interact(driver, page):
    svg = driver.find_element(By.CSS_SELECTOR, "svg.plot:has(g[data-name] .line)")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", svg)
    ActionChains(driver).move_to_element(svg).perform()
    tip = driver.find_element(By.CSS_SELECTOR, ".tip")
    assert tip.is_displayed() and ":" in tip.text, f"{page}: no read-out: {tip.text}"
    data = svg.find_element(By.CSS_SELECTOR, "svg.data")
    before = data.get_dom_attribute("viewBox")
    ActionChains(driver).move_to_element_with_offset(svg, -60, 0).click_and_hold().move_by_offset(90, 0).release().perform()
    assert data.get_dom_attribute("viewBox") != before, f"{page}: dragging does not zoom"
    ActionChains(driver).double_click(svg).perform()
    assert data.get_dom_attribute("viewBox") == before, f"{page}: a double click does not zoom out"
    boxes = driver.find_elements(By.CSS_SELECTOR, ".chooser input")
    if boxes:
        line = driver.find_element(By.CSS_SELECTOR, 'g[data-run="0"]')
        driver.execute_script("arguments[0].click()", boxes[0])
        assert "off" in line.get_dom_attribute("class"), f"{page}: a run cannot be hidden"
    assert not driver.get_log("browser"), page


def main():
    driver = start()
    try:
        for page in sys.argv[1:]:
            light = shown(driver, page, 390, "light")
            dark = shown(driver, page, 390, "dark")
            assert light != dark, f"{page}: light and dark are the same"
            assert not overlaps(driver), f"{page}, narrow: {overlaps(driver)[:3]}"
            shown(driver, page, 1400, "dark")
            shown(driver, page, 1400, "light")
            assert not overlaps(driver), f"{page}, wide: {overlaps(driver)[:3]}"
            interact(driver, page)
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
