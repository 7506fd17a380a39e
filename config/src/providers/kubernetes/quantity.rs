//! Amounts of a resource as Kubernetes writes them: `50m`, `64Mi`, `1.5`, `2e3`.

use std::cmp::Ordering;
use std::fmt;

/// An amount, comparable exactly. Prints as it was written.
#[derive(Debug, Clone)]
pub struct Quantity {
    text: String,
    /// In thousand-millionths of one.
    nanos: u128,
}

const RULE: &str = "must be a quantity, such as 50m, 64Mi or 1.5";
const ONE: u128 = 1_000_000_000;

impl Quantity {
    /// Reads one; negative ones and those below a thousand-millionth are none of ours.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, suffix) = text.split_at(split);
        let nanos = mantissa(number).and_then(|(digits, decimals)| scaled(digits, decimals, suffix));
        nanos.map(|nanos| Self { text: text.to_owned(), nanos }).ok_or(RULE)
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it lies between two others.
    pub(super) fn is_within(&self, least: &str, most: &str) -> bool {
        let fits = |bound: &str, order: Ordering| Self::parse(bound).is_ok_and(|bound| bound.cmp(self) != order);
        fits(least, Ordering::Greater) && fits(most, Ordering::Less)
    }
}

/// `1.50` as 150 and two decimals.
fn mantissa(number: &str) -> Option<(u128, u32)> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && decimals.is_empty()) || decimals.contains('.') || number.len() > 20 {
        return None;
    }
    Some((format!("{whole}{decimals}").parse().ok()?, u32::try_from(decimals.len()).ok()?))
}

fn scaled(digits: u128, decimals: u32, suffix: &str) -> Option<u128> {
    let power = |base: u128, exponent: u32| base.checked_pow(exponent);
    let unit = match suffix {
        "n" => 1,
        "u" => 1000,
        "m" => 1_000_000,
        "" => ONE,
        "k" => ONE * power(10, 3)?,
        "M" => ONE * power(10, 6)?,
        "G" => ONE * power(10, 9)?,
        "T" => ONE * power(10, 12)?,
        "P" => ONE * power(10, 15)?,
        "E" => ONE * power(10, 18)?,
        "Ki" => ONE * power(1024, 1)?,
        "Mi" => ONE * power(1024, 2)?,
        "Gi" => ONE * power(1024, 3)?,
        "Ti" => ONE * power(1024, 4)?,
        "Pi" => ONE * power(1024, 5)?,
        "Ei" => ONE * power(1024, 6)?,
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok().filter(|exponent| (-9..=18).contains(exponent))?;
            power(10, u32::try_from(exponent + 9).ok()?)?
        }
    };
    // The API server rounds up what is finer than it can keep.
    Some(digits.checked_mul(unit)?.div_ceil(power(10, decimals)?))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn amounts_compare_by_what_they_are_worth() {
        let ascending = ["1n", "1u", "1m", "50m", "0.1", "1", "1.5", "2e3", "1Ki", "1M", "1Mi", "64Mi", "0.5Gi", "1G", "1Gi", "1T", "1Ei"];
        for pair in ascending.windows(2) {
            // 1Ki is less than 2e3.
            let (a, b) = (of(pair[0]), of(pair[1]));
            assert_eq!(a < b, (pair[0], pair[1]) != ("2e3", "1Ki"), "{a} {b}");
        }
        assert_eq!(of("1000m"), of("1"));
        assert_eq!(of("1.50"), of("1500m"));
        assert_eq!(of("1e3"), of("1k"));
        assert_eq!(of(".5"), of("500m"));
        assert_eq!(of("100E-3"), of("0.1"));
        assert_eq!(of("64Mi").to_string(), "64Mi");
        assert!(of("64Mi").is_within("64Mi", "1Gi") && of("1Gi").is_within("64Mi", "1Gi"));
        assert!(!of("63Mi").is_within("64Mi", "1Gi") && !of("1025Mi").is_within("64Mi", "1Gi"));
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in
            ["", "m", "-1", "+1", "1 Mi", "1mi", "1.2.3", "1e", "e3", "1e99", "99999999999999999999999", "1Mib", "64mb", "NaN", "0x10"]
        {
            assert!(Quantity::parse(text).is_err(), "{text:?}");
        }
    }
}
