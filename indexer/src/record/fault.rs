//! What can be wrong with one record, without saying where it lies.

use thiserror::Error;

use crate::tokenize::TokenizeError;

/// Why a record, or the rest of a source, cannot be indexed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// Not JSON.
    #[error("broken JSON: {why}")]
    Json {
        /// What the parser says.
        why: String,
    },
    /// JSON, but no object.
    #[error("{got} where an object is wanted{hint}")]
    NotAnObject {
        /// What it is.
        got: &'static str,
        /// What to do about it, with a leading separator, or nothing.
        hint: &'static str,
    },
    /// More than one value on a line.
    #[error("more follows the object on the same line; one object a line is wanted")]
    TwoValues,
    /// A field that must be there is not.
    #[error("no field {field:?}")]
    NoField {
        /// Its dotted path.
        field: String,
    },
    /// A field is not a string.
    #[error("field {field:?} is {got}, a string is wanted")]
    FieldType {
        /// Its dotted path.
        field: String,
        /// What it is.
        got: &'static str,
    },
    /// A field occurs twice in an object.
    #[error("field {field:?} occurs twice")]
    FieldTwice {
        /// Its dotted path.
        field: String,
    },
    /// Bytes that are not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// Half of a surrogate pair, which no Unicode text can hold.
    #[error("half of a surrogate pair in an escape (\\uD800 to \\uDFFF alone)")]
    LoneSurrogate,
    /// A domain's name breaks the rules.
    #[error("{why}")]
    DomainName {
        /// Which rule.
        why: String,
    },
    /// A record larger than what is read into memory.
    #[error("more than {most} bytes in one record")]
    TooLong {
        /// The limit.
        most: u64,
    },
    /// The compressed stream ends too early or is damaged; what follows in the source is lost.
    #[error("cannot decompress further ({why}); the file is truncated or damaged")]
    Archive {
        /// What the decoder says.
        why: String,
    },
    /// What the compressed stream unpacked to is not what was packed.
    #[error(
        "the checksum of what was unpacked is wrong ({why}): the file is damaged, and lines before this one may be too"
    )]
    ArchiveChecksum {
        /// What the decoder says.
        why: String,
    },
    /// The stream was packed with a dictionary, which is not in it.
    #[error(
        "was packed with a zstd dictionary, which is not in the file; unpack it first: `zstd -d -D DICTIONARY`"
    )]
    ArchiveDictionary,
    /// A record has the domain's field, though its source was taken for one without.
    #[error(
        "field {field:?} is there, which the first record of the file has not; `--domain-from field` or `--domain-from file` says \
         what to go by"
    )]
    LateDomain {
        /// Its dotted path.
        field: String,
    },
    /// The table's file is damaged or of an unexpected shape.
    #[error("{why}")]
    Table {
        /// What the reader says.
        why: String,
    },
    /// The index of a Megatron dataset is damaged, or no such index.
    #[error("no whole index of a Megatron dataset: {why}")]
    Megatron {
        /// What is wrong with it.
        why: String,
    },
    /// The system refused to read on.
    #[error("cannot be read: {why}")]
    Read {
        /// What the system says.
        why: String,
    },
    /// The file is not what it was when the build began.
    #[error(
        "was changed or removed while it was read: what was taken of it may be neither the old nor the new"
    )]
    Changed,
    /// A source without a single document.
    #[error("holds no document")]
    NoDocument,
    /// The tokenizer refused the text.
    #[error(transparent)]
    Tokenize(#[from] TokenizeError),
    /// An id that the tokenizer does not have.
    #[error(
        "token {place} has the id {id}, the tokenizer has {vocabulary} ids; is it the tokenizer that the ids are of?"
    )]
    UnknownToken {
        /// The token in its document, from 0.
        place: usize,
        /// The id; 4294967295 stands for a negative one too.
        id: u32,
        /// Ids are below this.
        vocabulary: u32,
    },
    /// The tokenizer gave an id that it says it does not have.
    #[error("the tokenizer gave the id {id}, its vocabulary has {vocabulary} ids")]
    TokenOutOfRange {
        /// The id.
        id: u32,
        /// Ids are below this.
        vocabulary: u32,
    },
}

impl Fault {
    /// The kind in a word or two, by which skipped records are counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Json { .. } => "broken JSON",
            Self::NotAnObject { .. } => "not an object",
            Self::TwoValues => "two values on a line",
            Self::NoField { .. } => "field missing",
            Self::FieldType { .. } => "field not a string",
            Self::FieldTwice { .. } => "field twice",
            Self::NotUtf8 => "not UTF-8",
            Self::LoneSurrogate => "lone surrogate",
            Self::DomainName { .. } => "domain name",
            Self::TooLong { .. } => "too long",
            Self::Archive { .. } => "rest of a damaged archive",
            Self::ArchiveChecksum { .. } => {
                "rest of a damaged archive, what was read of it may be damaged too"
            }
            Self::ArchiveDictionary => "packed with a dictionary",
            Self::LateDomain { .. } => "domain field that the first record lacks",
            Self::Table { .. } | Self::Megatron { .. } => "rest of a damaged table",
            Self::Read { .. } => "unreadable",
            Self::Changed => "changed while read",
            Self::NoDocument => "no document",
            Self::Tokenize(_) => "not tokenised",
            Self::UnknownToken { .. } => "unknown token",
            Self::TokenOutOfRange { .. } => "token out of range",
        }
    }

    /// Whether the fault is not the record's: then no option makes the build pass over it.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::TokenOutOfRange { .. })
    }
}
