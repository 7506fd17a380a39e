//! Vendor data of two parts before Python's `email`, which is what cloud-init reads it with.

use std::process::{Command, Stdio};

use egress_nocloud::{AGENT_SCRIPT, vendor_data};

use crate::support::{have, skip};

/// As cloud-init does: parse the text, then take each part's type and decoded bytes.
const READ: &str = "
import email, sys
message = email.message_from_string(sys.stdin.buffer.read().decode())
for part in message.walk():
    if not part.is_multipart():
        print(part.get_content_type(), part.get_payload(decode=True).hex())
";

#[test]
fn python_finds_both_parts_with_their_types_byte_for_byte_lv_63() {
    if !have("python3") {
        return skip("python_finds_both_parts_with_their_types_byte_for_byte_lv_63", "no python3");
    }
    for (document, content_type) in [
        ("#cloud-config\nfinal_message: \"grüß, 世界\"\n", "text/cloud-config"),
        ("#!/bin/sh\nprintf 'no newline at the end'", "text/x-shellscript"),
        ("#include\nhttp://example.com/a\r\n\r\n", "text/x-include-url"),
        ("## template: jinja\n#cloud-config\n{{ v1.region }}\n\n\n", "text/jinja2"),
    ] {
        let text = vendor_data(document, true).unwrap();
        let mut python = Command::new("python3").args(["-c", READ]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut python.stdin.take().unwrap(), text.as_bytes()).unwrap();
        let output = python.wait_with_output().unwrap();
        let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
        let expected = format!("{content_type} {}\ntext/x-shellscript {}\n", hex(document), hex(AGENT_SCRIPT));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }
}
