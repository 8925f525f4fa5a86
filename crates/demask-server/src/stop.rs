//! Stop strings in a text that arrives in pieces: nothing of them is given out.

/// Watches a text for stop strings. The first one to be complete ends it, however the text is cut into pieces.
#[derive(Debug)]
pub(crate) struct Stops {
    stops: Vec<String>,
    /// The end of the text, which may be the beginning of a stop string.
    held: String,
}

impl Stops {
    pub(crate) fn new(stops: Vec<String>) -> Stops {
        Stops { stops, held: String::new() }
    }

    /// Takes a piece; gives what can't be part of a stop string, and whether one was found.
    pub(crate) fn push(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop).map(|at| (at + stop.len(), at)));
        if let Some((_, at)) = found.min() {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let may_begin = |at: &usize| {
            let end = &self.held[*at..];
            self.stops.iter().any(|stop| stop.starts_with(end))
        };
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let first = self.held.len().saturating_sub(longest);
        let keep = (first..self.held.len()).filter(|&at| self.held.is_char_boundary(at)).find(may_begin);
        let kept = self.held.split_off(keep.unwrap_or(self.held.len()));
        (std::mem::replace(&mut self.held, kept), false)
    }

    /// The text has ended: what was held back belongs to it.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is given out when `text` is cut behind each of `cuts`.
    fn shown(stops: &[&str], text: &str, cuts: &[usize]) -> (String, bool) {
        let mut watch = Stops::new(stops.iter().map(|&stop| stop.to_owned()).collect());
        let mut out = String::new();
        let mut from = 0;
        for &to in cuts.iter().chain([&text.len()]) {
            let (piece, found) = watch.push(&text[from..to]);
            out += &piece;
            if found {
                return (out, true);
            }
            from = to;
        }
        (out + &watch.finish(), false)
    }

    #[test]
    fn f03_stop_strings_are_found_however_the_text_is_cut() {
        let cases: [(&[&str], &str, &str, bool); 9] = [
            (&["END"], "abcENDdef", "abc", true),
            (&["x", "END"], "abcENDdef", "abc", true),
            (&["END"], "abcEN", "abcEN", false),
            (&["END"], "EENEND", "EEN", true),
            (&["aab"], "aaab", "a", true),
            (&["abc", "b"], "abc", "a", true),
            (&["🦀"], "ü🦀ü", "ü", true),
            (&[], "abc", "abc", false),
            (&["\n\n"], "a\n\nb", "a", true),
        ];
        for (stops, text, wanted, found) in cases {
            let places: Vec<usize> = (0..=text.len()).filter(|&at| text.is_char_boundary(at)).collect();
            for &first in &places {
                for &second in places.iter().filter(|&&second| second >= first) {
                    let label = format!("{stops:?} in {text:?} cut at {first} and {second}");
                    assert_eq!(shown(stops, text, &[first, second]), (wanted.to_owned(), found), "{label}");
                }
            }
        }
    }

    #[test]
    fn only_what_may_begin_a_stop_string_is_held_back() {
        let mut stops = Stops::new(vec!["END".to_owned()]);
        assert_eq!(stops.push("abE"), ("ab".to_owned(), false));
        assert_eq!(stops.push("x"), ("Ex".to_owned(), false));
    }
}
