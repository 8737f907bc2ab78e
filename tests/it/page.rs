//! The page for people, and what it looks like to a browser.

use std::io::Write as _;
use std::process::Command;

use crate::observed::Observed;

const BROWSERS: [&str; 5] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

#[tokio::test]
async fn the_page_goes_from_numa_node_and_pf_to_vf_pool_and_pod() {
    let plugin = Observed::with_something_to_see().await;
    let page = plugin.get("/").await;
    assert_eq!(page.status, 200);
    for forbidden in ["<script", "src=", "href=", "url(", "@import", "onload"] {
        assert!(!page.body.contains(forbidden), "{forbidden}");
    }
    insta::assert_snapshot!("page", plugin.settled(&page.body));
    plugin.stop().await;
}

#[tokio::test]
async fn a_browser_shows_the_page_and_has_nothing_to_complain_of() {
    let has =
        |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
    let Some(browser) = BROWSERS.into_iter().find(has) else {
        let text = "SKIPPED: the page was not shown in a browser: there is no chromium here\n";
        std::io::stderr().write_all(text.as_bytes()).unwrap();
        return;
    };
    let plugin = Observed::with_something_to_see().await;
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
        ])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--window-size=1200,1100",
            "--timeout=20000",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg("--dump-dom")
        .arg(format!("http://{}/", plugin.address().await));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (dom, log) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(dom.contains("<h2>NUMA node 0</h2>") && dom.contains("</table>"), "{dom}\n{log}");
    // A parser that had to repair the page would have moved or closed something.
    let rows = |text: &str| text.matches("<tr>").count();
    assert_eq!(rows(&dom), rows(&plugin.get("/").await.body));
    assert!(
        dom.contains(r#"<span class="bad" title="/dev/vfio/52 does not exist">unhealthy</span>"#),
        "{dom}"
    );
    assert!(dom.contains("8a0f (main)"), "{dom}");
    assert!(!log.contains("CONSOLE") && !log.contains("Refused"), "{log}");
    plugin.stop().await;
}
