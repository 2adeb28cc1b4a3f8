//! The house rules hold in this checkout.

use std::path::Path;

#[test]
fn the_checkout_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let breaches = hds_tools::tidy::check(&root).expect("the checkout can be read");
    let list: String = breaches
        .iter()
        .map(|breach| format!("{breach}\n"))
        .collect();
    assert!(breaches.is_empty(), "{} breaches:\n{list}", breaches.len());
}
