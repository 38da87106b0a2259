//! Owns what a label can be: values that are known before the process runs.
//!
//! Names that only a running process knows (a folder, a rail) are labels of whole tables:
//! `table_family`.

use std::marker::PhantomData;

/// A label whose values are the variants of an enum.
///
/// `#[derive(MetricLabel)]` writes a variant in lower case with underscores, unless
/// `#[label("3xx")]` says otherwise. Its doc comment is the value's meaning in the document.
pub trait MetricLabel: Copy + 'static {
    /// Every value, in the order of `value_index`.
    const VALUES: &'static [LabelValue];

    /// The place of this value in `VALUES`.
    fn value_index(self) -> usize;

    /// The value as `/metrics` shows it.
    fn label_text(self) -> &'static str {
        Self::VALUES[self.value_index()].text
    }
}

/// One value of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelValue {
    /// As `/metrics` shows it.
    pub text: &'static str,
    /// What it means, as one line of Markdown. Empty where the text says it.
    pub documentation: &'static str,
}

/// A value that may be missing, which shows as `none`.
impl<T: MetricLabel> MetricLabel for Option<T> {
    const VALUES: &'static [LabelValue] = ValuesAndNone::<T>::LIST.split_at(T::VALUES.len() + 1).0;

    fn value_index(self) -> usize {
        self.map_or(T::VALUES.len(), T::value_index)
    }
}

struct ValuesAndNone<T>(PhantomData<T>);

impl<T: MetricLabel> ValuesAndNone<T> {
    /// The values of `T` and `none`. The length of an array can't depend on `T`.
    const LIST: [LabelValue; 256] = {
        let mut list = [LabelValue { text: "none", documentation: "" }; 256];
        let mut index = 0;
        while index < T::VALUES.len() {
            list[index] = T::VALUES[index];
            index += 1;
        }
        list
    };
}

/// All labels of a family: one label, or a tuple of up to three.
pub trait LabelSet: Copy + 'static {
    /// How many series there can be.
    const SERIES: usize;

    /// The place of these values among all series.
    fn series_index(self) -> usize;

    /// The values of the series at `index`.
    fn list_texts(index: usize) -> Vec<&'static str>;

    /// The values of each label.
    fn describe_values() -> Vec<&'static [LabelValue]>;
}

impl<A: MetricLabel> LabelSet for A {
    const SERIES: usize = A::VALUES.len();

    fn series_index(self) -> usize {
        self.value_index()
    }

    fn list_texts(index: usize) -> Vec<&'static str> {
        vec![A::VALUES[index].text]
    }

    fn describe_values() -> Vec<&'static [LabelValue]> {
        vec![A::VALUES]
    }
}

impl<A: MetricLabel, B: MetricLabel> LabelSet for (A, B) {
    const SERIES: usize = A::VALUES.len() * B::VALUES.len();

    fn series_index(self) -> usize {
        self.0.value_index() * B::VALUES.len() + self.1.value_index()
    }

    fn list_texts(index: usize) -> Vec<&'static str> {
        let others = B::VALUES.len();
        vec![A::VALUES[index / others].text, B::VALUES[index % others].text]
    }

    fn describe_values() -> Vec<&'static [LabelValue]> {
        vec![A::VALUES, B::VALUES]
    }
}

impl<A: MetricLabel, B: MetricLabel, C: MetricLabel> LabelSet for (A, B, C) {
    const SERIES: usize = A::VALUES.len() * <(B, C)>::SERIES;

    fn series_index(self) -> usize {
        self.0.value_index() * <(B, C)>::SERIES + (self.1, self.2).series_index()
    }

    fn list_texts(index: usize) -> Vec<&'static str> {
        let others = <(B, C)>::SERIES;
        let mut texts = A::list_texts(index / others);
        texts.extend(<(B, C)>::list_texts(index % others));
        texts
    }

    fn describe_values() -> Vec<&'static [LabelValue]> {
        vec![A::VALUES, B::VALUES, C::VALUES]
    }
}
