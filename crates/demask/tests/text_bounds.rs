//! Templates that never end, or eat all memory. Alone in its process, so that the peak is its own.

#![allow(clippy::print_stdout)]

mod text_support;

use std::time::{Duration, Instant};

use demask::text::{ChatTemplate, Message, Role, TextError};
use text_support::Vocabulary;

/// Peak memory of this process in bytes, where the system tells.
fn peak() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()? * 1024)
}

#[test]
fn c11_no_template_runs_on_or_out_of_bounds() {
    let many = |part: &str, n: usize| part.repeat(n);
    let deep = |open: &str, inner: &str, close: &str| {
        format!("{{{{ {}{inner}{} }}}}", many(open, 30_000), many(close, 30_000))
    };
    let mut hostile = vec![
        ("range", "{% for i in range(10**9) %}x{% endfor %}".to_owned()),
        ("nested ranges", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}".to_owned()),
        ("string times", "{{ 'a' * 10**10 }}".to_owned()),
        ("list times", "{{ ([1] * 10**9)|length }}".to_owned()),
        ("nested ifs", many("{% if true %}", 10_000) + &many("{% endif %}", 10_000)),
        ("few nested ifs", many("{% if true %}", 1_000) + &many("{% endif %}", 1_000)),
        ("nested fors", many("{% for a in [1] %}", 500) + &many("{% endfor %}", 500)),
        ("include", "{% include '/etc/passwd' %}".to_owned()),
        ("import", "{% import '/etc/passwd' as x %}{{ x }}".to_owned()),
        ("extends", "{% extends '/etc/passwd' %}".to_owned()),
        ("self include", "{% include 'chat' %}".to_owned()),
        ("self extends", "{% extends 'chat' %}".to_owned()),
        ("macro", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".to_owned()),
        ("two macros", "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}".to_owned()),
        ("recursive loop", "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}".to_owned()),
        ("doubling", "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}".to_owned()),
        ("doubling output", "{% set ns = namespace(s=['a']) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}".to_owned()),
        ("doubling json", "{% set ns = namespace(s=['a']) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson }}".to_owned()),
        ("deep list", "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}".to_owned()),
        ("namespace in itself", "{% set ns = namespace() %}{% set ns.s = ns %}{{ ns }}".to_owned()),
        ("namespace in its list", "{% set ns = namespace() %}{% set ns.s = [ns] %}{{ ns.s ~ 'x' }}".to_owned()),
        ("namespaces in each other", "{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{{ '%s'|format(a) }}".to_owned()),
        ("wide lists as text", "{% set a = ['x'] * 1000 %}{% set b = [a] * 1000 %}{{ [b] * 1000 ~ '' }}".to_owned()),
        ("a wide list as text", "{{ [1] * 10**8 ~ '' }}".to_owned()),
        ("a wide list as output", "{{ [1] * 10**8 }}".to_owned()),
        ("a wide list filtered", "{{ ([1] * 10**8)|string|length }}".to_owned()),
        ("a wide list joined", "{{ ([1] * 10**8)|join|length }}".to_owned()),
        ("a wide list, in a list", "{{ [[1] * 10**8]|string|length }}".to_owned()),
        ("a wide list, as argument", "{{ '%s'|format([1] * 10**8)|length }}".to_owned()),
        ("a wide list, as method argument", "{{ '{}'.format([1] * 10**8)|length }}".to_owned()),
        ("doubling, then text", "{% set ns = namespace(s=['a']) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s ~ '' }}".to_owned()),
        ("doubling, then compared", "{% set ns = namespace(s=['a'], t=['a']) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}".to_owned()),
        ("doubling in a macro", "{% macro f(x, n) %}{% if n %}{{ f([x, x], n - 1) }}{% else %}{{ x ~ '' }}{% endif %}{% endmacro %}{{ f('a', 40) }}".to_owned()),
        ("doubling in a loop", "{% for x in ['a'] recursive %}{% if loop.depth < 40 %}{{ loop([[x, x]]) }}{% else %}{{ x ~ '' }}{% endif %}{% endfor %}".to_owned()),
        ("doubling in raw guise", "{% raw %}{{ {% endraw %}{% set ns = namespace(s=['a']) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s ~ '' }}".to_owned()),
        ("replace", "{% set s = 'a' * 1000000 %}{{ s.replace('a', s)|length }}".to_owned()),
        ("replace filter", "{% set s = 'a' * 1000000 %}{{ s|replace('a', s)|length }}".to_owned()),
        ("join", "{% set s = 'a' * 1000000 %}{{ s.join(range(100000))|length }}".to_owned()),
        ("wide number", "{{ '{:1000000000}'.format(1)|length }}".to_owned()),
        ("wide argument", "{{ '{:{}}'.format(1, 1000000000)|length }}".to_owned()),
        ("wide filter", "{{ '%1000000000d'|format(1)|length }}".to_owned()),
        ("indent", "{{ ('\\n' * 1000000)|indent(1000000)|length }}".to_owned()),
        ("json indent", "{{ [[[1]]]|tojson(indent=1000000000)|length }}{{ 1/0 }}".to_owned()),
        ("class walk", "{{ x.__class__.__mro__ }}".to_owned()),
        ("class walk of text", "{{ ''.__class__.__mro__[1].__subclasses__() }}".to_owned()),
        ("comparisons", "{% set s = 'a' * 1000000 %}{% set t = s ~ '' %}{% for i in range(100000) %}{{ s == t }}{% endfor %}".to_owned()),
        ("counting", "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s.count('aaab') }}{% endfor %}".to_owned()),
        ("splitting", "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set x = s.split('a') %}{% endfor %}".to_owned()),
        ("long source", many("x", 1_000_000)),
        ("elif chain", format!("{{% if x %}}{}{{% endif %}}", many("{% elif x %}", 9_000))),
        ("dict guise", format!("{{{{ {{1:{{2:3}}}}{} }}}}", many("+1", 40_000))),
        ("comment guise", format!("{{{{ 1 {{# }}}} #}} {} }}}}", many("+1", 40_000))),
        ("quote guise", format!("{{{{ '\\\\' ~ '}}}}'{} }}}}", many("~x", 40_000))),
        ("raw guise", format!("{{% raw %}}{{{{{{% endraw %}}{{{{ 1{} }}}}", many("+1", 40_000))),
    ];
    for (name, part) in [
        ("sum", "+1"),
        ("concat", "~x"),
        ("attributes", ".b"),
        ("filters", "|trim"),
        ("calls", "()"),
        ("and", " and x"),
        ("tests", " is defined"),
        ("powers", "**1"),
        ("items", "[0]"),
        ("comparison", "<1"),
    ] {
        hostile.push((name, format!("{{{{ x{} }}}}", many(part, 100_000 / part.len()))));
    }
    for (name, open, close) in [("brackets", "(", ")"), ("lists", "[", "]"), ("not", "not ", ""), ("minus", "-", "")] {
        hostile.push((name, deep(open, "1", close)));
    }
    hostile.push(("ternary", format!("{{{{ {}1 }}}}", many("1 if x else ", 9_000))));

    let tokenizer = Vocabulary::llada().build();
    let messages = [Message::new(Role::User, "Hi")];
    for (name, source) in hostile {
        let started = Instant::now();
        let error: TextError = match ChatTemplate::for_model(Some(&source), "llada") {
            Err(error) => error,
            Ok(template) => template.encode(&tokenizer, &messages, true).expect_err(name),
        };
        let took = started.elapsed();
        println!("{name}: {took:?}: {error}");
        assert!(took < Duration::from_secs(2), "{name}: {took:?}");
        assert!(error.to_string().len() < 1_000, "{name}: {error}");
        assert!(!error.to_string().contains("root:"), "{name} read a file");
        if let Some(bytes) = peak() {
            assert!(bytes < 200 << 20, "{name}: {bytes} bytes");
        }
    }
}

#[test]
fn c11_attributes_of_python_are_nothing() {
    let tokenizer = Vocabulary::llada().build();
    let render = |source: &str| {
        let messages = [Message::new(Role::User, "Hi")];
        ChatTemplate::for_model(Some(source), "llada")?.render(&tokenizer, &messages, true)
    };
    // An attribute that isn't there is undefined, and undefined has no attributes.
    assert_eq!(render("{{ messages.__class__ }}{{ ''.__class__ }}").expect("undefined is empty"), "");
    assert!(render("{{ ''.__class__.__mro__ }}").is_err());
    assert!(render("{{ x.__class__ }}").is_err());
}
