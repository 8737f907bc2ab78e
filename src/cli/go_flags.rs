//! The Go plugin's spelling of arguments, so that only the image changes in a DaemonSet.

use std::ffi::OsString;

/// Flags of glog that have no meaning here. `-v` and `-log_dir` have one.
const IGNORED: [&str; 5] =
    ["logtostderr", "alsologtostderr", "stderrthreshold", "vmodule", "log_backtrace_at"];
/// Those of them that need no value.
const BOOLEAN: [&str; 2] = ["logtostderr", "alsologtostderr"];
/// Long flags that Go's `flag` package also takes with one dash.
const LONG: [&str; 6] = ["config-file", "resource-prefix", "use-cdi", "log-dir", "log_dir", "log-level"];

/// Gives long forms their second dash, and takes out what has no meaning here: the arguments, and what was left out.
pub(super) fn translate(arguments: impl IntoIterator<Item = OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut kept = Vec::new();
    let mut ignored = Vec::new();
    let mut arguments = arguments.into_iter();
    kept.extend(arguments.next());
    while let Some(argument) = arguments.next() {
        let Some(flag) = argument.to_str().and_then(flag) else {
            let ends = argument == "--";
            kept.push(argument);
            if ends {
                kept.extend(arguments);
                break;
            }
            continue;
        };
        let name = flag.split('=').next().unwrap_or(flag);
        if IGNORED.contains(&name) {
            ignored.push(format!("--{name}"));
            if !flag.contains('=') && !BOOLEAN.contains(&name) {
                arguments.next();
            }
        } else if LONG.contains(&name) {
            kept.push(format!("--{flag}").into());
        } else if name == "v" {
            kept.push(format!("-{flag}").into());
        } else {
            kept.push(argument);
        }
    }
    (kept, ignored)
}

/// What follows one dash or two; nothing for a word or a lone dash.
fn flag(argument: &str) -> Option<&str> {
    let flag = argument.strip_prefix('-')?;
    let flag = flag.strip_prefix('-').unwrap_or(flag);
    (!flag.is_empty()).then_some(flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> (String, Vec<String>) {
        let (kept, ignored) = translate(line.split(' ').map(OsString::from));
        let kept: Vec<String> = kept.into_iter().map(|argument| argument.into_string().unwrap()).collect();
        (kept.join(" "), ignored)
    }

    #[test]
    fn one_dash_is_as_good_as_two() {
        let (kept, ignored) =
            translated("pcidp -config-file=/a -resource-prefix x.y -use-cdi --log-level=10 -o json");
        assert_eq!(kept, "pcidp --config-file=/a --resource-prefix x.y --use-cdi --log-level=10 -o json");
        assert!(ignored.is_empty());
    }

    #[test]
    fn flags_of_glog_without_a_meaning_are_taken_out_with_their_values() {
        let line = "pcidp -v 4 -logtostderr -alsologtostderr=true --stderrthreshold=INFO -vmodule a=1 -log_dir /x --v=3";
        let (kept, ignored) = translated(line);
        assert_eq!(kept, "pcidp -v 4 --log_dir /x -v=3");
        assert_eq!(ignored, ["--logtostderr", "--alsologtostderr", "--stderrthreshold", "--vmodule"]);
    }

    #[test]
    fn a_value_keeps_its_equals_signs_and_nothing_after_a_double_dash_is_touched() {
        assert_eq!(translated("pcidp -resource-prefix=a=b -- -v").0, "pcidp --resource-prefix=a=b -- -v");
    }
}
