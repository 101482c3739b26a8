//! Answers of servers that are given again while they are fresh.

use std::collections::HashMap;

use waypost_net::clock::Millis;
use waypost_rocketmq_remoting::answer::Answer;

/// Different questions whose answers are kept; more are asked for each time.
const COUNT_MAX: usize = 1_024;

/// What all of them may take. What finds no room is asked for each time.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// What is asked: everything on which an answer depends.
pub(crate) type Question = (i32, i32, Vec<(String, String)>);

/// The answers, with what they take.
#[derive(Debug, Default)]
pub(crate) struct KeptAnswers {
    answers: HashMap<Question, Kept>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    answer: Answer,
    until: Millis,
    bytes: usize,
}

impl KeptAnswers {
    /// The answer to `question`, if it is fresh.
    pub(crate) fn get(&self, question: &Question, now: Millis) -> Option<Answer> {
        let kept = self.answers.get(question).filter(|kept| now < kept.until)?;
        Some(kept.answer.clone())
    }

    /// Keeps an answer until the time given, if there is room for it.
    pub(crate) fn keep(&mut self, question: Question, answer: Answer, until: Millis, now: Millis) {
        let bytes = size_of(&question, &answer);
        if let Some(before) = self.answers.remove(&question) {
            self.bytes = self.bytes.saturating_sub(before.bytes);
        }
        if !self.has_room(bytes) {
            self.answers.retain(|_, kept| now < kept.until);
            self.bytes = self.answers.values().map(|kept| kept.bytes).sum();
        }
        if self.has_room(bytes) {
            self.bytes = self.bytes.saturating_add(bytes);
            self.answers.insert(question, Kept { answer, until, bytes });
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.answers.len() < COUNT_MAX && self.bytes.saturating_add(bytes) <= BYTES_MAX
    }
}

fn size_of(question: &Question, answer: &Answer) -> usize {
    let fields = |fields: &[(String, String)]| -> usize {
        fields.iter().map(|(key, value)| key.len().saturating_add(value.len())).sum()
    };
    let remark = answer.remark.as_ref().map_or(0, String::len);
    let ext = answer.ext.as_deref().map_or(0, fields);
    [fields(&question.2), remark, ext, answer.body.len()].into_iter().fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply;

    const MIB: usize = 1024 * 1024;

    fn at(milliseconds: u64) -> Millis {
        Millis::new(milliseconds)
    }

    fn question(number: usize) -> Question {
        (901, 0, vec![("brokerName".to_owned(), number.to_string())])
    }

    fn answer(bytes: usize) -> Answer {
        Answer { body: vec![0; bytes].into(), ..reply::success() }
    }

    #[test]
    fn an_answer_is_given_again_while_it_is_fresh() {
        let mut kept = KeptAnswers::default();
        kept.keep(question(1), answer(1), at(1_000), at(10));
        assert_eq!(kept.get(&question(1), at(999)), Some(answer(1)));
        assert_eq!(kept.get(&question(1), at(1_000)), None);
        assert_eq!(kept.get(&question(2), at(999)), None);
        kept.keep(question(1), answer(2), at(2_000), at(1_000));
        assert_eq!(kept.get(&question(1), at(1_000)), Some(answer(2)));
    }

    #[test]
    fn kept_answers_take_64_mib_at_most() {
        let mut kept = KeptAnswers::default();
        for number in 0..100 {
            kept.keep(question(number), answer(MIB), at(1_000), at(0));
            assert!(kept.bytes <= BYTES_MAX);
        }
        assert_eq!(kept.answers.len(), 63, "the questions count as well");
        // The same ones again, and one that is larger than all together.
        for number in 0..63 {
            kept.keep(question(number), answer(MIB), at(1_000), at(0));
        }
        kept.keep(question(0), answer(65 * MIB), at(1_000), at(0));
        assert_eq!((kept.answers.len(), kept.get(&question(0), at(0))), (62, None));
        // What is over makes room.
        kept.keep(question(200), answer(60 * MIB), at(3_000), at(2_000));
        assert_eq!(kept.answers.len(), 1);
        let sizes: usize = kept.answers.values().map(|kept| kept.bytes).sum();
        assert_eq!(kept.bytes, sizes);
    }

    #[test]
    fn many_small_answers_are_bounded_as_well() {
        let mut kept = KeptAnswers::default();
        for number in 0..2 * COUNT_MAX {
            kept.keep(question(number), answer(0), at(1_000), at(0));
        }
        assert_eq!(kept.answers.len(), COUNT_MAX);
    }
}
