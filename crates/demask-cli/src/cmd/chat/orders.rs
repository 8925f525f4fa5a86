//! What a person may order instead of saying something: lines that begin with a slash.

use crate::failure::{Misuse, closest};

/// An order, with its argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Help,
    Clear,
    Quit,
    Recipe(Option<String>),
    Retry,
    Seed(Option<String>),
    System(Option<String>),
    Temperature(Option<String>),
}

/// How an order is given.
pub(super) struct Row {
    pub(super) name: &'static str,
    /// What may follow it.
    pub(super) argument: Option<&'static str>,
    pub(super) does: &'static str,
    order: fn(Option<String>) -> Order,
}

/// Every order: one row each.
pub(super) const ORDERS: &[Row] = &[
    Row { name: "clear", argument: None, does: "forget the conversation", order: |_| Order::Clear },
    Row { name: "help", argument: None, does: "show this", order: |_| Order::Help },
    Row { name: "quit", argument: None, does: "leave", order: |_| Order::Quit },
    Row {
        name: "recipe",
        argument: Some("NAME"),
        does: "decode with another recipe; without a name, show them",
        order: Order::Recipe,
    },
    Row { name: "retry", argument: None, does: "answer again, with the next seed", order: |_| Order::Retry },
    Row { name: "seed", argument: Some("N"), does: "set the seed, or show it", order: Order::Seed },
    Row {
        name: "system",
        argument: Some("TEXT"),
        does: "set the instructions, or show them; `-` takes them away",
        order: Order::System,
    },
    Row {
        name: "temperature",
        argument: Some("T"),
        does: "set the randomness of the tokens, or show it",
        order: Order::Temperature,
    },
];

/// A line that was entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Nothing,
    Message(String),
    Order(Order),
}

/// What a line means. Two slashes begin a message with one.
pub(super) fn read(line: &str) -> Result<Said, Misuse> {
    if line.trim().is_empty() {
        return Ok(Said::Nothing);
    }
    let Some(rest) = line.trim_start().strip_prefix('/') else {
        return Ok(Said::Message(line.to_owned()));
    };
    if rest.starts_with('/') {
        return Ok(Said::Message(rest.to_owned()));
    }
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let argument = Some(argument.trim()).filter(|argument| !argument.is_empty());
    let Some(row) = ORDERS.iter().find(|row| row.name == name.to_ascii_lowercase()) else {
        let message = format!("there is no command `/{name}`");
        let hint = match closest(name, ORDERS.iter().map(|row| row.name)) {
            Some(meant) => format!("did you mean `/{meant}`? A message that begins with a slash is written with two"),
            None => "`/help` lists them; a message that begins with a slash is written with two".to_owned(),
        };
        return Err(Misuse::new(message, hint));
    };
    match (row.argument, argument) {
        (None, Some(argument)) => {
            Err(Misuse::new(format!("`/{}` takes nothing, but `{argument}` follows it", row.name), "leave that out"))
        }
        (_, argument) => Ok(Said::Order((row.order)(argument.map(str::to_owned)))),
    }
}

/// The lines of `/help`.
pub(super) fn help() -> impl Iterator<Item = String> {
    let given = |row: &Row| match row.argument {
        Some(argument) => format!("/{} {argument}", row.name),
        None => format!("/{}", row.name),
    };
    let orders = ORDERS.iter().map(move |row| format!("{:<16} {}", given(row), row.does));
    let keys = [
        ("Alt-Enter", "begin a new line; a message between \"\"\" and \"\"\" may have many, too"),
        ("Ctrl-C", "stop the answer; at the prompt, twice leaves"),
        ("Ctrl-D", "leave"),
    ];
    orders.chain(keys.into_iter().map(|(key, does)| format!("{key:<16} {does}")))
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn lines_are_messages_or_orders() {
        let message = |text: &str| Said::Message(text.to_owned());
        let some = |text: &str| Some(text.to_owned());
        for (line, wanted) in [
            ("hi / there", message("hi / there")),
            ("  indented", message("  indented")),
            ("//etc/hosts", message("/etc/hosts")),
            (" \t", Said::Nothing),
            ("/quit", Said::Order(Order::Quit)),
            ("/QUIT  ", Said::Order(Order::Quit)),
            ("/seed", Said::Order(Order::Seed(None))),
            ("/system  Be brief. ", Said::Order(Order::System(some("Be brief.")))),
            ("/system two\nlines", Said::Order(Order::System(some("two\nlines")))),
        ] {
            assert_eq!(read(line).expect(line), wanted, "{line}");
        }
    }

    #[test]
    fn the_closest_order_is_suggested() {
        for (line, suggested) in [("/retri", "/retry"), ("/exit", "/help"), ("/sistem x", "/system"), ("/q", "/quit")] {
            let error = read(line).expect_err(line);
            assert!(error.source().is_none() && error.hint().is_some_and(|hint| hint.contains(suggested)), "{error:?}");
        }
        assert!(read("/quit now").expect_err("too much").to_string().contains("`now`"));
    }

    #[test]
    fn help_names_every_order() {
        let lines: Vec<String> = help().collect();
        assert!(ORDERS.iter().zip(&lines).all(|(row, line)| line.starts_with(&format!("/{}", row.name))));
        assert!(ORDERS.is_sorted_by_key(|row| row.name));
    }
}
