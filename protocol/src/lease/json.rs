//! JSON written by hand, for answers that are written very often. Equal, byte for byte, to what serde writes.

use std::io::Write;

use crate::time::Timestamp;

/// A string with its quotes.
pub fn write_str(text: &str, out: &mut Vec<u8>) {
    if text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\') {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        // Writing into a Vec cannot fail, and a string always has a JSON form.
        let _infallible = serde_json::to_writer(out, text);
    }
}

/// An unsigned integer.
pub fn write_u64(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// `true` or `false`.
pub fn write_bool(value: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// A time with its quotes: RFC 3339, UTC, three decimals.
pub fn write_time(at: Timestamp, out: &mut Vec<u8>) {
    const DAY: i64 = 86_400_000;
    let millis = at.unix_millis();
    let (days, rest) = (millis.div_euclid(DAY), millis.rem_euclid(DAY));
    // Civil date from days since the epoch, after Howard Hinnant's algorithm (years counted from 1 March).
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    if !(1000..=9999).contains(&year) {
        let _infallible = write!(out, "\"{at}\"");
        return;
    }
    let mut text = *b"\"0000-00-00T00:00:00.000Z\"";
    let mut put = |from: usize, digits: usize, mut value: i64| {
        for place in text[from..from + digits].iter_mut().rev() {
            *place = b'0' + u8::try_from(value % 10).unwrap_or(0);
            value /= 10;
        }
    };
    put(1, 4, year);
    put(6, 2, month);
    put(9, 2, day);
    put(12, 2, rest / 3_600_000);
    put(15, 2, rest / 60_000 % 60);
    put(18, 2, rest / 1000 % 60);
    put(21, 3, rest % 1000);
    out.extend_from_slice(&text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_time_is_written_as_serde_writes_it(millis in -60_000_000_000_000i64..253_402_300_800_000i64) {
            let at = Timestamp::from_millis(millis);
            let mut out = Vec::new();
            write_time(at, &mut out);
            prop_assert_eq!(out, serde_json::to_vec(&at).unwrap());
        }

        #[test]
        fn a_string_is_written_as_serde_writes_it(text: String) {
            let mut out = Vec::new();
            write_str(&text, &mut out);
            prop_assert_eq!(out, serde_json::to_vec(&text).unwrap());
        }

        #[test]
        fn an_integer_is_written_as_serde_writes_it(value: u64) {
            let mut out = Vec::new();
            write_u64(value, &mut out);
            prop_assert_eq!(out, serde_json::to_vec(&value).unwrap());
        }
    }
}
