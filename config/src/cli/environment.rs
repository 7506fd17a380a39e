//! Variables that stand in for flags that were not given.
//!
//! They are turned into arguments, so that one parser reads both; which ones came that way is kept, so that a fault names
//! what a person has to change.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Command};

use super::Stop;

/// Arguments completed from the environment.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) args: Vec<OsString>,
    /// The flags, without dashes, whose value came by a variable.
    pub(super) variables: BTreeSet<String>,
}

/// `gc-interval` → `EPO_GC_INTERVAL`.
pub(super) fn variable_of(flag: &str) -> String {
    format!("EPO_{}", flag.to_ascii_uppercase().replace('-', "_"))
}

/// Adds what the environment says about flags that were not given.
pub(super) fn complete(command: Command, mut args: Vec<OsString>, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Given, Stop> {
    let matches = command.clone().try_get_matches_from(&args)?;
    let mut variables = BTreeSet::new();
    let (Some((name, matches)), Some(place)) = (matches.subcommand(), after_subcommand(&args, &matches)) else {
        return Ok(Given { args, variables });
    };
    let mut added = Vec::new();
    for arg in command.find_subcommand(name).into_iter().flat_map(Command::get_arguments) {
        let Some(flag) = arg.get_long().filter(|flag| *flag != "help") else { continue };
        let value = variable(&variable_of(flag)).filter(|value| !value.is_empty());
        let (Some(value), false) = (value, matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)) else {
            continue;
        };
        let words =
            words(arg, flag, &value).map_err(|reason| Stop { code: 2, text: format!("error: {} {}", variable_of(flag), reason) })?;
        added.extend(words);
        variables.insert(flag.to_owned());
    }
    args.splice(place..place, added);
    Ok(Given { args, variables })
}

/// Where arguments of the subcommand begin: no argument of ours may stand before its name.
fn after_subcommand(args: &[OsString], matches: &clap::ArgMatches) -> Option<usize> {
    let name = matches.subcommand_name()?;
    args.iter().skip(1).position(|arg| arg == name).map(|at| at + 2)
}

/// A flag as if it had been given; a list is separated by commas.
fn words(arg: &Arg, flag: &str, value: &OsStr) -> Result<Vec<OsString>, String> {
    let word = |value: &OsStr| {
        let mut word = OsString::from(format!("--{flag}="));
        word.push(value);
        word
    };
    match arg.get_action() {
        ArgAction::SetTrue => match value.to_str() {
            Some("true" | "1") => Ok(vec![OsString::from(format!("--{flag}"))]),
            Some("false" | "0") => Ok(Vec::new()),
            _ => Err("must be true or false".to_owned()),
        },
        ArgAction::Append => match value.to_str() {
            Some(text) => Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(|item| word(OsStr::new(item))).collect()),
            None => Err("is not UTF-8 text".to_owned()),
        },
        _ => Ok(vec![word(value)]),
    }
}

/// Tells each flag's variable in its help.
pub(super) fn annotate(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |sub| {
            sub.mut_args(|arg| {
                let (Some(flag), Some(help)) = (arg.get_long().map(str::to_owned), arg.get_help().map(ToString::to_string)) else {
                    return arg;
                };
                arg.help(format!("{help} [env: {}]", variable_of(&flag)))
            })
        })
    })
}
