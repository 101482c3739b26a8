//! How many files this process may open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::not_run;

/// Raises the limit of open files of this process to `wanted`. If that cannot be, says in one line what is not
/// run for lack of it.
pub(crate) fn files_allow(what: &str, wanted: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return true;
    }
    let maximum = limit.maximum.map(|maximum| maximum.max(wanted));
    if setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok() {
        return true;
    }
    not_run(what, &format!("{wanted} open files are not allowed (ulimit -n)"));
    false
}
