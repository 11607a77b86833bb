//! The colours of a repository: those in its `.swimmers/colors.json`, otherwise a set derived from its path.

use protocol::reply::Theme;
use protocol::{OsBytes, digest};
use serde::Deserialize;

const SPRITES: [&str; 3] = ["fish", "balls", "jelly"];

/// The content of the file; other fields are ignored.
#[derive(Deserialize)]
struct File {
    palette: Palette,
    sprite: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Palette {
    body: String,
    outline: String,
    accent: String,
    shirt: String,
}

/// Reads `colors.json`; the caller fills in `of`. None if it is not JSON, or if a colour is missing or not of
/// the form `#rrggbb`. An unknown sprite is left out.
pub fn parse(colors_json: &[u8]) -> Option<Theme> {
    let file: File = serde_json::from_slice(colors_json).ok()?;
    let sprite = file.sprite.as_ref().and_then(serde_json::Value::as_str);
    Some(Theme {
        of: OsBytes::default(),
        body: hex(&file.palette.body)?,
        outline: hex(&file.palette.outline)?,
        accent: hex(&file.palette.accent)?,
        shirt: hex(&file.palette.shirt)?,
        sprite: sprite.filter(|name| SPRITES.contains(name)).map(str::to_owned),
        own: true,
    })
}

/// Derives colours from a path, always the same for a path: body and shirt of two hues, outline and accent
/// dark enough to be legible on both.
pub fn from_path(path: &[u8]) -> Theme {
    let seed = hash(path);
    let pick = |shift: u32, of: u64| u32::try_from((seed >> shift) % of).unwrap_or(0);
    let hue = pick(0, 360);
    let other = hue + 60 + pick(12, 121);
    let sprite = SPRITES[pick(48, 3) as usize % SPRITES.len()];
    Theme {
        of: OsBytes(path.to_vec()),
        body: hsl(hue, 55 + pick(24, 16), 60 + pick(30, 11)),
        outline: hsl(hue + 6, 40, 12),
        accent: hsl(hue + 350, 45, 8),
        shirt: hsl(other, 32 + pick(36, 19), 62 + pick(42, 9)),
        sprite: Some(sprite.to_owned()),
        own: false,
    }
}

/// Returns a colour of the form `#rrggbb` in lower case.
fn hex(text: &str) -> Option<String> {
    let text = text.trim();
    let digits = text.strip_prefix('#')?;
    (digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| text.to_ascii_lowercase())
}

/// The digest with the finalizer of `SplitMix64`, so that paths that differ in one letter have distant
/// hashes.
fn hash(bytes: &[u8]) -> u64 {
    let fnv = digest(bytes);
    let mixed = (fnv ^ (fnv >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns a colour from its hue in degrees and its saturation and lightness in per cent. Integer arithmetic,
/// so that the result is the same on every machine.
fn hsl(hue: u32, saturation: u32, lightness: u32) -> String {
    // All shares from here on are in 10,000ths.
    let chroma = (100 - (2 * lightness).abs_diff(100)) * saturation;
    let low = 2 * lightness * 100 - chroma;
    let hue = hue % 360;
    // The second largest component, which rises and falls between the six pure hues.
    let second = chroma * (60 - (hue % 120).abs_diff(60)) / 60;
    let (red, green, blue) = match hue / 60 {
        0 => (chroma, second, 0),
        1 => (second, chroma, 0),
        2 => (0, chroma, second),
        3 => (0, second, chroma),
        4 => (second, 0, chroma),
        _ => (chroma, 0, second),
    };
    let byte = |part: u32| (2 * part + low) * 255 / 20_000;
    format!("#{:02x}{:02x}{:02x}", byte(red), byte(green), byte(blue))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn w25_a_repositorys_own_colours_are_read() {
        let text = br##"{"target":"x","palette":{"body":"#B89875","outline":"#3d2f24","accent":" #1D1914 ","shirt":"#aa9370",
            "skin":"#F3D2B6"},"sprite":"jelly"}"##;
        let theme = parse(text).unwrap();
        assert_eq!([theme.body, theme.outline], ["#b89875", "#3d2f24"]);
        assert_eq!([theme.accent, theme.shirt], ["#1d1914", "#aa9370"]);
        assert_eq!((theme.sprite.as_deref(), theme.own), (Some("jelly"), true));
    }

    #[test]
    fn w25_what_is_not_whole_is_not_taken() {
        let with = |body: &str, more: &str| {
            let rest = r##""outline":"#3d2f24","accent":"#1d1914","shirt":"#aa9370""##;
            parse(format!(r#"{{"palette":{{"body":"{body}",{rest}}}{more}}}"#).as_bytes())
        };
        assert!(with("#b89875", "").is_some_and(|theme| theme.sprite.is_none()));
        assert!(with("#b89875", r#","sprite":"shark""#).is_some_and(|theme| theme.sprite.is_none()));
        assert!(with("#b89875", r#","sprite":7"#).is_some_and(|theme| theme.sprite.is_none()));
        for body in ["b89875", "#b8987", "#b898755", "#b8987g", "red", "", "#é9875"] {
            assert_eq!(with(body, ""), None, "{body}");
        }
        for text in ["{ not json ", "", "[]", r##"{"palette":{"body":"#123456"}}"##, r#"{"palette":null}"#] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn w25_the_colours_of_a_path_stay_the_same() {
        let theme = from_path(b"/home/user/project");
        assert_eq!(theme, from_path(b"/home/user/project"));
        assert_eq!(theme.of, OsBytes::from("/home/user/project"));
        assert!(!theme.own);
        let colours = [theme.body, theme.outline, theme.accent, theme.shirt];
        assert_eq!(colours, ["#5555e1", "#14122a", "#0b0e1d", "#c882c5"], "they were other ones before");
    }

    #[test]
    fn a_colour_is_what_its_numbers_say() {
        assert_eq!(hsl(0, 100, 50), "#ff0000");
        assert_eq!(hsl(60, 100, 50), "#ffff00");
        assert_eq!(hsl(480, 100, 50), "#00ff00");
        assert_eq!(hsl(180, 100, 25), "#007f7f");
        assert_eq!(hsl(240, 100, 50), "#0000ff");
        assert_eq!(hsl(300, 0, 100), "#ffffff");
        assert_eq!(hsl(330, 100, 50), "#ff007f");
        assert_eq!(hsl(10, 50, 0), "#000000");
    }

    /// Returns the relative luminance of a colour, from 0 to 1 (WCAG 2).
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let part = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    #[test]
    fn colours_made_are_apart_and_can_be_read() {
        let themes: Vec<_> =
            (0..2000).map(|n| from_path(format!("/home/user/project-{n}").as_bytes())).collect();
        let sets: HashSet<_> = themes.iter().map(|t| (&t.body, &t.outline, &t.accent, &t.shirt)).collect();
        assert_eq!(sets.len(), themes.len());
        for theme in &themes {
            assert_ne!(theme.body, theme.shirt);
            for (on, of) in
                [(&theme.body, &theme.outline), (&theme.body, &theme.accent), (&theme.shirt, &theme.accent)]
            {
                let ratio = (luminance(on) + 0.05) / (luminance(of) + 0.05);
                assert!(ratio >= 3.0, "{ratio}: {theme:?}");
            }
        }
    }

    #[test]
    fn a_made_theme_is_one_that_could_be_written() {
        for path in [&b""[..], b"/", b"\xff\xfe", "/höme".as_bytes()] {
            let theme = from_path(path);
            for colour in [&theme.body, &theme.outline, &theme.accent, &theme.shirt] {
                assert_eq!(hex(colour).as_ref(), Some(colour));
            }
            assert!(theme.sprite.is_some_and(|sprite| SPRITES.contains(&sprite.as_str())));
        }
    }
}
