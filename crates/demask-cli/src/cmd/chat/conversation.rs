//! What was said so far, and what of it fits the model's context.

use anyhow::Result;
use demask::{Message, Role};

/// A message and what was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Turn {
    message: String,
    /// Nothing, if the answer was stopped before any of it was final, or failed.
    answer: Option<String>,
}

/// A conversation.
#[derive(Debug)]
pub(super) struct Conversation {
    /// Instructions that precede it; they are never dropped.
    pub(super) system: Option<String>,
    turns: Vec<Turn>,
}

/// A prompt that fits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fitted {
    pub(super) tokens: Vec<u32>,
    /// How many of the oldest turns were dropped for it.
    pub(super) dropped: usize,
}

impl Conversation {
    /// Nothing said yet.
    pub(super) fn new(system: Option<String>) -> Conversation {
        Conversation { system, turns: Vec::new() }
    }

    /// Takes a message; one before it that got no answer is forgotten.
    pub(super) fn ask(&mut self, message: String) {
        self.turns.pop_if(|turn| turn.answer.is_none());
        self.turns.push(Turn { message, answer: None });
    }

    /// Takes the answer to the last message.
    pub(super) fn answered(&mut self, answer: String) {
        if let Some(turn) = self.turns.last_mut() {
            turn.answer = Some(answer).filter(|answer| !answer.is_empty());
        }
    }

    /// Takes the last message back, to ask it again.
    pub(super) fn take_last(&mut self) -> Option<String> {
        self.turns.pop().map(|turn| turn.message)
    }

    /// Forgets everything but the instructions.
    pub(super) fn clear(&mut self) {
        self.turns.clear();
    }

    /// The prompt of the last message. The oldest turns are dropped until `room` positions of `context` are left for the
    /// answer; if not even the last message alone leaves them, nothing is dropped.
    pub(super) fn fit(
        &mut self,
        room: usize,
        context: usize,
        encode: &dyn Fn(&[Message]) -> Result<Vec<u32>>,
    ) -> Result<Fitted> {
        let old = self.turns.len().saturating_sub(1);
        let mut least = 0;
        for dropped in 0..=old {
            let tokens = encode(&self.messages(dropped))?;
            if tokens.len().saturating_add(room) <= context {
                self.turns.drain(..dropped);
                return Ok(Fitted { tokens, dropped });
            }
            least = tokens.len();
        }
        Err(demask::Error::Context { prompt: least, max_tokens: room, limit: context }.into())
    }

    fn messages(&self, skipped: usize) -> Vec<Message> {
        let mut messages: Vec<Message> =
            self.system.iter().map(|system| Message::new(Role::System, system.clone())).collect();
        for turn in &self.turns[skipped..] {
            messages.push(Message::new(Role::User, turn.message.clone()));
            messages.extend(turn.answer.iter().map(|answer| Message::new(Role::Assistant, answer.clone())));
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token per byte of what is said, and one per message.
    fn encode(messages: &[Message]) -> Result<Vec<u32>> {
        Ok(messages.iter().flat_map(|m| m.content.bytes().map(u32::from).chain([0])).collect())
    }

    fn conversation(turns: usize) -> Conversation {
        let mut conversation = Conversation::new(Some("sys".to_owned()));
        for n in 0..turns {
            conversation.ask(format!("q{n}"));
            conversation.answered(format!("a{n}"));
        }
        conversation.ask("last".to_owned());
        conversation
    }

    fn text(tokens: &[u32]) -> String {
        tokens.iter().map(|&t| if t == 0 { '|' } else { char::from(t as u8) }).collect()
    }

    #[test]
    fn the_oldest_turns_go_and_the_instructions_stay() {
        // 4 for the instructions, 6 per turn, 5 for the message: 33 with four turns.
        for (context, dropped, wanted) in [
            (43, 0, "sys|q0|a0|q1|a1|q2|a2|q3|a3|last|"),
            (42, 1, "sys|q1|a1|q2|a2|q3|a3|last|"),
            (37, 1, "sys|q1|a1|q2|a2|q3|a3|last|"),
            (36, 2, "sys|q2|a2|q3|a3|last|"),
            (19, 4, "sys|last|"),
        ] {
            let mut conversation = conversation(4);
            let fitted = conversation.fit(10, context, &encode).expect("it fits");
            assert_eq!((fitted.dropped, text(&fitted.tokens).as_str()), (dropped, wanted), "context {context}");
            assert!(fitted.tokens.len() + 10 <= context);
            assert_eq!(conversation.turns.len(), 5 - dropped);
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_and_nothing_is_dropped() {
        let mut conversation = conversation(4);
        let error = conversation.fit(10, 18, &encode).expect_err("19 are needed");
        let demask::Error::Context { prompt: 9, max_tokens: 10, limit: 18 } = error.downcast().expect("of the library")
        else {
            panic!("other numbers");
        };
        assert_eq!(conversation.turns.len(), 5);
    }

    #[test]
    fn a_message_without_an_answer_is_no_part_of_the_next_prompt() {
        let mut conversation = conversation(1);
        conversation.answered(String::new());
        conversation.ask("next".to_owned());
        assert_eq!(text(&conversation.fit(1, 99, &encode).expect("it fits").tokens), "sys|q0|a0|next|");
        assert_eq!(conversation.take_last().as_deref(), Some("next"));
        assert_eq!(conversation.take_last().as_deref(), Some("q0"));
        conversation.clear();
        assert_eq!(conversation.take_last(), None);
    }
}
