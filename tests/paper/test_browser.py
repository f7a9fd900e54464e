"""The committed report in a real browser: Chromium without a window. Skipped where there is none."""

import os
import shutil
from pathlib import Path

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: it is in the extra `dev`")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

PAGE = Path(__file__).resolve().parents[2] / "results/desk/report.html"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="no Chromium with chromedriver: apt-get install chromium chromium-driver"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--hide-scrollbars", f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # which Chromium refuses to root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(params=[(1280, 900), (390, 844)], ids=["desktop", "phone"])
def page(browser, request):
    width, height = request.param
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(PAGE.as_uri())
    yield browser
    assert browser.get_log("browser") == []  # no error, no warning, nothing that it could not load


def shown(page) -> list:
    return page.execute_script(
        "return [...document.querySelectorAll('article tr[data-verdict]:not([hidden])')]"
        ".map(row => [row.dataset.verdict, row.dataset.dataset])"
    )


def box(page, value):
    return page.find_element(By.CSS_SELECTOR, f"#filters input[value='{value}']")


def test_every_picture_is_drawn_and_nothing_leaves_the_window(page):
    widths = page.execute_script("return [...document.images].map(image => image.naturalWidth)")
    assert len(widths) >= 13 and min(widths) > 0
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert (
        page.execute_script("return document.querySelector('math[display=block]').getBoundingClientRect().height") > 10
    )


def test_filters_leave_what_was_chosen(page):
    everything = shown(page)
    for name in ("not run", "not comparable", "reproduced"):
        box(page, name).click()
    left = [row for row in everything if row[0] not in ("not run", "not comparable", "reproduced")]
    assert shown(page) == left and 0 < len(left) < len(everything)
    box(page, "neuronio").click()
    assert shown(page) == [row for row in left if row[1] != "neuronio"]
    articles = page.find_elements(By.CSS_SELECTOR, "article:not([hidden])")
    assert articles and all(article.find_elements(By.CSS_SELECTOR, "tr[data-verdict]") for article in articles)
    assert page.find_element(By.CSS_SELECTOR, "article:not([hidden]) details.verdicts").get_attribute("open")
    for name in ("shd", "shd_adding", "lra"):
        box(page, name).click()
    assert shown(page) == [] and page.find_element(By.ID, "nothing").is_displayed()
    page.find_element(By.CSS_SELECTOR, "#nothing button").click()
    page.execute_async_script("setTimeout(arguments[0], 50)")
    assert shown(page) == everything


def test_a_table_is_sorted_by_a_click_and_by_the_keyboard(page):
    def column() -> list[str]:
        cells = page.find_elements(By.CSS_SELECTOR, "#tab-s8 .values tbody tr > :nth-child(3)")
        return [cell.get_attribute("textContent") for cell in cells]

    def thousands(texts):
        return [float(text.removesuffix("K")) for text in texts]

    first = column()
    head = page.find_element(By.CSS_SELECTOR, "#tab-s8 .values thead th:nth-child(3)")
    button = head.find_element(By.TAG_NAME, "button")
    page.execute_script("arguments[0].click()", button)
    assert head.get_attribute("aria-sort") == "ascending" and thousands(column()) == sorted(thousands(first))
    button.send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "descending"
    assert thousands(column()) == sorted(thousands(first), reverse=True)
    button.send_keys(Keys.SPACE)
    assert head.get_attribute("aria-sort") is None and column() == first


def test_verdict_rows_are_sorted_with_empty_cells_last(page):
    page.execute_script("document.querySelector('#tab-s9 details.verdicts').open = true")
    page.find_element(By.CSS_SELECTOR, "#tab-s9 .rows thead th:nth-child(3) button").send_keys(Keys.ENTER)
    cells = page.find_elements(By.CSS_SELECTOR, "#tab-s9 .rows tbody td:nth-child(3)")
    texts = [cell.get_attribute("textContent").strip() for cell in cells]
    numbers = [float(text.split()[0].replace(",", "")) for text in texts if text != "–"]
    assert numbers == sorted(numbers) and numbers
    assert set(texts[len(numbers) :]) <= {"–"}
