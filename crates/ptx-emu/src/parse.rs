//! Parses a PTX text into its [`Unit`].

use crate::error::ParseError;
use crate::lex::{Spot, Token, number, tokens};
use crate::syntax::{Function, Instruction, Operand, Space, Statement, Type, Unit, Variable};

/// Bytes of one variable at most; a longer one is a mistake or an attack.
const MAX_VARIABLE: usize = 1 << 28;
/// Registers that one directive may declare.
const MAX_REGISTERS: usize = 1 << 16;
/// Scopes within scopes.
const MAX_DEPTH: usize = 64;

type Parsed<T> = Result<T, ParseError>;

/// Parses a whole text.
pub(crate) fn unit<'a>(module: &str, text: &'a str) -> Parsed<Unit<'a>> {
    let mut parser = Parser { module, spots: tokens(module, text)?, at: 0, source: None };
    let mut unit = Unit::default();
    while let Some(token) = parser.peek() {
        match token {
            Token::Word(".version" | ".address_size") => {
                let directive = parser.word()?;
                let line = parser.line();
                let found = parser.number_text()?;
                if directive == ".address_size" && found != "64" {
                    return Err(parser.fail(line, format!("expected 64-bit addresses, found {found}")));
                }
            }
            Token::Word(".target") => {
                parser.next();
                parser.word()?;
                while parser.eat(',') {
                    parser.word()?;
                }
            }
            Token::Word(".file") => parser.file(&mut unit)?,
            Token::Word(".section") => parser.section()?,
            Token::Word(".visible" | ".weak" | ".common") => parser.at += 1,
            Token::Word(".entry" | ".func") => unit.functions.extend(parser.function()?),
            Token::Word(".extern") => {
                parser.next();
                if matches!(parser.peek(), Some(Token::Word(".func" | ".entry"))) {
                    // A declaration; calling it fails where the call stands.
                    if let Some(function) = parser.function()? {
                        return Err(
                            parser.fail(function.line, format!("extern function `{}` has a body", function.name))
                        );
                    }
                } else {
                    let variables = parser.variables()?;
                    if let Some(other) = variables.iter().find(|variable| !variable.is_dynamic) {
                        let what = format!("extern variable `{}` lives in another module: not supported", other.name);
                        return Err(parser.fail(other.line, what));
                    }
                    unit.variables.extend(variables);
                }
            }
            Token::Word(".global" | ".const" | ".shared") => unit.variables.extend(parser.variables()?),
            Token::Word(".pragma") => parser.skip_statement()?,
            other => return Err(parser.unexpected("a directive of a module", other)),
        }
    }
    Ok(unit)
}

struct Parser<'a, 'm> {
    module: &'m str,
    spots: Vec<Spot<'a>>,
    at: usize,
    /// What the last `.loc` said.
    source: Option<(u32, u32)>,
}

impl<'a> Parser<'a, '_> {
    fn fail(&self, line: usize, what: String) -> ParseError {
        ParseError { module: self.module.to_owned(), line, what }
    }

    /// Line of the next token, or of the last.
    fn line(&self) -> usize {
        self.spots.get(self.at).or(self.spots.last()).map_or(1, |spot| spot.line)
    }

    fn unexpected(&self, expected: &str, found: impl Into<Option<Token<'a>>>) -> ParseError {
        let found = match found.into() {
            None => "the end".to_owned(),
            Some(Token::Word(word) | Token::Number(word)) => format!("`{}`", word.escape_debug()),
            Some(Token::Text(text)) => format!("\"{}\"", text.escape_debug()),
            Some(Token::Sign(sign)) => format!("`{}`", sign.escape_debug()),
        };
        self.fail(self.line(), format!("expected {expected}, found {found}"))
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.spots.get(self.at).map(|spot| spot.token)
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn eat(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(Token::Sign(sign));
        self.at += usize::from(found);
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(Token::Word(word));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: char) -> Parsed<()> {
        if self.eat(sign) { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"), self.peek())) }
    }

    fn word(&mut self) -> Parsed<&'a str> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            other => Err(self.unexpected("a name", other)),
        }
    }

    fn number_text(&mut self) -> Parsed<&'a str> {
        match self.peek() {
            Some(Token::Number(text)) => {
                self.at += 1;
                Ok(text)
            }
            other => Err(self.unexpected("a number", other)),
        }
    }

    /// A number, perhaps negative, as two's complement.
    fn number(&mut self) -> Parsed<u64> {
        let negative = self.eat('-');
        let line = self.line();
        let text = self.number_text()?;
        let Some(value) = number(text) else {
            return Err(self.fail(line, format!("expected a number, found `{text}`")));
        };
        Ok(if negative { value.wrapping_neg() } else { value })
    }

    /// A number that counts something.
    fn count(&mut self, what: &str, most: usize) -> Parsed<usize> {
        let line = self.line();
        let value = self.number()?;
        match usize::try_from(value) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(self.fail(line, format!("{what}: expected at most {most}, found {value}"))),
        }
    }

    fn skip_statement(&mut self) -> Parsed<()> {
        while !self.eat(';') {
            if self.next().is_none() {
                return Err(self.unexpected("`;`", None));
            }
        }
        Ok(())
    }

    fn file(&mut self, unit: &mut Unit<'a>) -> Parsed<()> {
        self.next();
        let index = self.number()? as u32;
        match self.next() {
            Some(Token::Text(name)) => unit.files.push((index, name.to_owned())),
            other => return Err(self.unexpected("the name of a file", other)),
        }
        while self.eat(',') {
            self.number()?;
        }
        Ok(())
    }

    /// `.section NAME { ... }`: information for debuggers.
    fn section(&mut self) -> Parsed<()> {
        self.next();
        self.word()?;
        self.expect('{')?;
        while !self.eat('}') {
            if self.next().is_none() {
                return Err(self.unexpected("`}`", None));
            }
        }
        Ok(())
    }

    /// A type, after its dot.
    fn kind(&mut self) -> Parsed<Type> {
        let found = self.peek();
        if let Some(Token::Word(word)) = found
            && let Some(kind) = word.strip_prefix('.').and_then(Type::named)
        {
            self.at += 1;
            return Ok(kind);
        }
        Err(self.unexpected("a type", found))
    }

    /// Variables of one directive, up to the semicolon.
    fn variables(&mut self) -> Parsed<Vec<Variable<'a>>> {
        let space = self.space()?;
        let mut variables = Vec::new();
        let (align, kind) = self.align_and_type()?;
        loop {
            let mut variable = self.variable(space, align, kind)?;
            if self.eat('=') {
                self.initialise(&mut variable, kind)?;
            }
            variables.push(variable);
            if !self.eat(',') {
                break;
            }
        }
        self.expect(';')?;
        Ok(variables)
    }

    fn space(&mut self) -> Parsed<Space> {
        let found = self.peek();
        let space = match found {
            Some(Token::Word(".global")) => Space::Global,
            Some(Token::Word(".const")) => Space::Const,
            Some(Token::Word(".shared")) => Space::Shared,
            Some(Token::Word(".local")) => Space::Local,
            Some(Token::Word(".param")) => Space::Param,
            _ => return Err(self.unexpected("a state space", found)),
        };
        self.at += 1;
        Ok(space)
    }

    /// `.align N .b8`, in any order, with the attributes of pointers that mean nothing here.
    fn align_and_type(&mut self) -> Parsed<(usize, Type)> {
        let (mut align, mut kind) = (None, None);
        loop {
            match self.peek() {
                Some(Token::Word(".align")) => {
                    self.at += 1;
                    let line = self.line();
                    let found = self.count("alignment", 1 << 16)?;
                    if !found.is_power_of_two() {
                        return Err(self.fail(line, format!("alignment: expected a power of two, found {found}")));
                    }
                    if kind.is_none() {
                        align = Some(found); // After the type it is that of what a pointer points to.
                    }
                }
                Some(Token::Word(".ptr")) => self.at += 1,
                Some(Token::Word(".global" | ".const" | ".shared" | ".local")) if kind.is_some() => self.at += 1,
                Some(Token::Word(word)) if word.starts_with('.') && kind.is_none() => kind = Some(self.kind()?),
                other => {
                    let Some(kind) = kind else { return Err(self.unexpected("a type", other)) };
                    return Ok((align.unwrap_or(kind.bytes()), kind));
                }
            }
        }
    }

    /// A name with the dimensions of an array.
    fn variable(&mut self, space: Space, align: usize, kind: Type) -> Parsed<Variable<'a>> {
        let line = self.line();
        let name = self.word()?;
        let (mut bytes, mut is_dynamic) = (kind.bytes(), false);
        while self.eat('[') {
            if self.eat(']') {
                is_dynamic = true;
                bytes = 0;
                continue;
            }
            let count = self.count("elements of an array", MAX_VARIABLE)?;
            bytes = bytes.saturating_mul(count);
            if bytes > MAX_VARIABLE {
                return Err(self.fail(line, format!("`{name}` has more than {MAX_VARIABLE} bytes")));
            }
            self.expect(']')?;
        }
        Ok(Variable { space, name, align, bytes, content: Vec::new(), is_dynamic, line })
    }

    fn initialise(&mut self, variable: &mut Variable<'a>, kind: Type) -> Parsed<()> {
        let line = self.line();
        let mut depth = 0;
        loop {
            match self.peek() {
                Some(Token::Sign('{')) => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                Some(Token::Number(_) | Token::Sign('-')) => {
                    let value = self.number()?;
                    variable.content.extend_from_slice(&value.to_le_bytes()[..kind.bytes()]);
                }
                other => {
                    return Err(self.unexpected("a number (initial values of other kinds are not supported)", other));
                }
            }
            while depth > 0 && self.eat('}') {
                depth -= 1;
            }
            if depth == 0 {
                break;
            }
            self.expect(',')?;
        }
        if variable.is_dynamic {
            variable.is_dynamic = false;
            variable.bytes = variable.content.len();
        }
        if variable.content.len() > variable.bytes {
            let (found, expected) = (variable.content.len(), variable.bytes);
            return Err(
                self.fail(line, format!("`{}` has {expected} bytes and initial values for {found}", variable.name))
            );
        }
        Ok(())
    }

    /// `( .param .u64 a, ... )`.
    fn params(&mut self) -> Parsed<Vec<Variable<'a>>> {
        let mut params = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            if !params.is_empty() {
                self.expect(',')?;
            }
            if self.peek() == Some(Token::Word(".reg")) {
                return Err(self.fail(self.line(), "parameters in registers are not supported".to_owned()));
            }
            let space = self.space()?;
            let (align, kind) = self.align_and_type()?;
            params.push(self.variable(space, align, kind)?);
        }
        Ok(params)
    }

    /// A kernel or function; nothing if it is only declared.
    fn function(&mut self) -> Parsed<Option<Function<'a>>> {
        let line = self.line();
        let is_kernel = self.word()? == ".entry";
        let returns = if !is_kernel && self.peek() == Some(Token::Sign('(')) { self.params()? } else { Vec::new() };
        let name = self.word()?;
        let params = if self.peek() == Some(Token::Sign('(')) { self.params()? } else { Vec::new() };
        let mut function = Function {
            name,
            is_kernel,
            returns,
            params,
            max_threads: None,
            required_threads: None,
            body: Vec::new(),
            line,
        };
        loop {
            match self.peek() {
                Some(Token::Word(directive @ (".maxntid" | ".reqntid"))) => {
                    self.at += 1;
                    let mut shape = [1; 3];
                    for (index, extent) in shape.iter_mut().enumerate() {
                        if index == 0 || self.eat(',') {
                            *extent = self.count("threads of a block", 1024)? as u32;
                        }
                    }
                    if directive == ".reqntid" {
                        function.required_threads = Some(shape);
                    } else {
                        function.max_threads = Some(shape.iter().map(|&extent| u64::from(extent)).product());
                    }
                }
                Some(Token::Word(".minnctapersm" | ".maxnreg" | ".maxnctapersm")) => {
                    self.at += 1;
                    self.number()?;
                }
                Some(Token::Word(".noreturn")) => self.at += 1,
                Some(Token::Word(".pragma")) => self.skip_statement()?,
                Some(Token::Sign(';')) => {
                    self.at += 1;
                    return Ok(None);
                }
                Some(Token::Sign('{')) => break,
                other => return Err(self.unexpected("the body of a function", other)),
            }
        }
        self.body(&mut function)?;
        Ok(Some(function))
    }

    fn body(&mut self, function: &mut Function<'a>) -> Parsed<()> {
        let mut depth = 0;
        loop {
            match self.peek() {
                Some(Token::Sign('{')) => {
                    self.at += 1;
                    depth += 1;
                    if depth > MAX_DEPTH {
                        return Err(self.fail(self.line(), format!("more than {MAX_DEPTH} scopes within one another")));
                    }
                    function.body.push(Statement::Open);
                }
                Some(Token::Sign('}')) => {
                    self.at += 1;
                    depth -= 1;
                    function.body.push(Statement::Close);
                    if depth == 0 {
                        return Ok(());
                    }
                }
                Some(Token::Sign(';')) => self.at += 1,
                Some(Token::Word(".reg")) => self.registers(&mut function.body)?,
                Some(Token::Word(".local" | ".shared" | ".param" | ".const" | ".global")) => {
                    function.body.extend(self.variables()?.into_iter().map(Statement::Variable));
                }
                Some(Token::Word(".loc")) => self.location()?,
                Some(Token::Word(".pragma")) => self.skip_statement()?,
                Some(Token::Word(word)) if !word.starts_with('.') && self.is_label() => {
                    self.label(&mut function.body)?
                }
                Some(Token::Word(word)) if !word.starts_with('.') => self.instruction(&mut function.body)?,
                Some(Token::Sign('@')) => self.instruction(&mut function.body)?,
                other => return Err(self.unexpected("an instruction", other)),
            }
        }
    }

    fn is_label(&self) -> bool {
        self.spots.get(self.at + 1).is_some_and(|spot| spot.token == Token::Sign(':'))
    }

    fn label(&mut self, body: &mut Vec<Statement<'a>>) -> Parsed<()> {
        let line = self.line();
        let name = self.word()?;
        self.expect(':')?;
        if self.eat_word(".branchtargets") {
            let mut targets = vec![self.word()?];
            while self.eat(',') {
                targets.push(self.word()?);
            }
            self.expect(';')?;
            body.push(Statement::Targets(name, targets));
            return Ok(());
        }
        body.push(Statement::Label(name, line));
        Ok(())
    }

    /// `.loc FILE LINE COLUMN`, with where it was inlined, on one line.
    fn location(&mut self) -> Parsed<()> {
        let line = self.line();
        self.next();
        let (file, source) = (self.number()? as u32, self.number()? as u32);
        self.source = Some((file, source));
        while self.spots.get(self.at).is_some_and(|spot| spot.line == line) {
            self.at += 1;
        }
        Ok(())
    }

    fn registers(&mut self, body: &mut Vec<Statement<'a>>) -> Parsed<()> {
        self.next();
        let kind = self.kind()?;
        loop {
            let line = self.line();
            let name = self.word()?;
            let mut count = None;
            if self.eat('<') {
                count = Some(self.count("registers", MAX_REGISTERS)?);
                self.expect('>')?;
            }
            body.push(Statement::Registers { name, count, kind, line });
            if !self.eat(',') {
                break;
            }
        }
        self.expect(';')
    }

    fn instruction(&mut self, body: &mut Vec<Statement<'a>>) -> Parsed<()> {
        let mut guard = None;
        let mut line = self.line();
        if self.eat('@') {
            let negated = self.eat('!');
            guard = Some((self.word()?, negated));
            line = self.line();
        }
        let opcode = self.word()?;
        let mut operands = Vec::new();
        while !self.eat(';') {
            if !operands.is_empty() {
                self.expect(',')?;
            }
            operands.push(self.operand(0)?);
        }
        body.push(Statement::Instruction(Instruction { guard, opcode, operands, line, source: self.source }));
        Ok(())
    }

    fn operand(&mut self, depth: usize) -> Parsed<Operand<'a>> {
        match self.peek() {
            Some(Token::Word(name)) => {
                self.at += 1;
                if self.eat('|') {
                    return Ok(Operand::Pair(name, self.word()?));
                }
                if self.eat('+') {
                    // `mov.u64 %rd1, variable+16;`
                    return Ok(Operand::Address(Some(name), self.number()? as i64));
                }
                Ok(Operand::Name(name))
            }
            Some(Token::Number(_) | Token::Sign('-')) => Ok(Operand::Number(self.number()?)),
            Some(Token::Sign('!')) => {
                self.at += 1;
                Ok(Operand::Not(self.word()?))
            }
            Some(Token::Sign('[')) => {
                self.at += 1;
                let operand = self.address()?;
                self.expect(']')?;
                Ok(operand)
            }
            Some(Token::Sign('{')) if depth == 0 => {
                self.at += 1;
                let mut parts = Vec::new();
                while !self.eat('}') {
                    if !parts.is_empty() {
                        self.expect(',')?;
                    }
                    parts.push(self.operand(depth + 1)?);
                }
                Ok(Operand::Vector(parts))
            }
            Some(Token::Sign('(')) if depth == 0 => {
                self.at += 1;
                let mut names = Vec::new();
                while !self.eat(')') {
                    if !names.is_empty() {
                        self.expect(',')?;
                    }
                    names.push(self.word()?);
                }
                Ok(Operand::List(names))
            }
            other => Err(self.unexpected("an operand", other)),
        }
    }

    fn address(&mut self) -> Parsed<Operand<'a>> {
        if matches!(self.peek(), Some(Token::Number(_) | Token::Sign('-'))) {
            return Ok(Operand::Address(None, self.number()? as i64));
        }
        let base = self.word()?;
        let mut offset = 0;
        if self.eat('+') || self.peek() == Some(Token::Sign('-')) {
            offset = self.number()? as i64;
        }
        Ok(Operand::Address(Some(base), offset))
    }
}
