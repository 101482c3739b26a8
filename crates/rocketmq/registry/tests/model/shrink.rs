//! Makes a failing history short.

use crate::replay::{Failure, replay};
use crate::step::{Action, History};

/// Removes steps, then parts of steps, as long as the history still fails; returns the rest and how it fails.
pub(crate) fn shrink(mut history: History, failure: Failure) -> (History, Failure) {
    let mut last = failure;
    history.steps.truncate(last.step + 1);
    loop {
        let before = size(&history);
        remove_steps(&mut history, &mut last);
        remove_details(&mut history, &mut last);
        if size(&history) == before {
            return (history, last);
        }
    }
}

/// Tries to leave out longer stretches first.
fn remove_steps(history: &mut History, last: &mut Failure) {
    let mut length = history.steps.len() / 2;
    while length > 0 {
        let mut start = 0;
        while start < history.steps.len() {
            let mut shorter = history.clone();
            shorter.steps.drain(start..(start + length).min(history.steps.len()));
            if !adopt(history, last, shorter) {
                start += length;
            }
        }
        length /= 2;
    }
}

/// Tries to leave out topics, options and the digest shortcut.
fn remove_details(history: &mut History, last: &mut Failure) {
    for number in 0..history.steps.len() {
        let Action::Register(announce) = &history.steps[number].action else { continue };
        for topic in (0..announce.body.topics.len()).rev() {
            try_with(history, last, number, |announce| {
                announce.body.topics.remove(topic);
            });
        }
        try_with(history, last, number, |announce| announce.body.mappings.clear());
        try_with(history, last, number, |announce| announce.body.filter_servers = Some(Vec::new()));
        try_with(history, last, number, |announce| announce.zone = None);
        try_with(history, last, number, |announce| announce.ha_address = None);
        try_with(history, last, number, |announce| announce.timeout = None);
        try_with(history, last, number, |announce| announce.digest_first = false);
    }
    for number in 0..history.steps.len() {
        let mut simpler = history.clone();
        simpler.steps[number].late = false;
        if history.steps[number].late {
            adopt(history, last, simpler);
        }
    }
}

fn try_with(
    history: &mut History,
    last: &mut Failure,
    number: usize,
    change: impl FnOnce(&mut crate::step::Announce),
) {
    let mut simpler = history.clone();
    let Some(Action::Register(announce)) = simpler.steps.get_mut(number).map(|step| &mut step.action) else {
        return;
    };
    change(announce);
    if size(&simpler) < size(history) {
        adopt(history, last, simpler);
    }
}

fn adopt(history: &mut History, last: &mut Failure, mut candidate: History) -> bool {
    match replay(&candidate) {
        Ok(_) => false,
        Err(failure) => {
            candidate.steps.truncate(failure.step + 1);
            (*history, *last) = (candidate, failure);
            true
        }
    }
}

fn size(history: &History) -> usize {
    history.steps.iter().map(|step| format!("{step}").len()).sum()
}
