//! Sines, cosines and their like in degrees (`sind`, `cosd`, `tand`, `cotd`, `asind`, `acosd`, `atand`, `atan2d`). As in
//! PostgreSQL, multiples of 30 and 45 degrees give exact values: each is calculated of an angle of the first quadrant, and
//! divided by what the same calculation gives where the value is known.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, Float64Array};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{exec_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Angle {
    Sine,
    Cosine,
    Tangent,
    Cotangent,
    ArcSine,
    ArcCosine,
    ArcTangent,
    ArcTangentOfTwo,
}

/// Names of the functions, and the number of arguments.
const FUNCTIONS: [(&str, Angle, usize); 8] = [
    ("sind", Angle::Sine, 1),
    ("cosd", Angle::Cosine, 1),
    ("tand", Angle::Tangent, 1),
    ("cotd", Angle::Cotangent, 1),
    ("asind", Angle::ArcSine, 1),
    ("acosd", Angle::ArcCosine, 1),
    ("atand", Angle::ArcTangent, 1),
    ("atan2d", Angle::ArcTangentOfTwo, 2),
];

#[derive(Debug, PartialEq, Eq, Hash)]
struct Degrees {
    name: &'static str,
    angle: Angle,
    signature: Signature,
}

pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    FUNCTIONS.into_iter().map(|(name, angle, count)| {
        let signature = Signature::exact(vec![DataType::Float64; count], Volatility::Immutable);
        Arc::new(ScalarUDF::from(Degrees { name, angle, signature }))
    })
}

impl ScalarUDFImpl for Degrees {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns =
            args.args.iter().map(|value| value.to_array(args.number_rows)).collect::<Result<Vec<ArrayRef>>>()?;
        let found: Float64Array = match columns.as_slice() {
            [values] => {
                let values = values.as_primitive::<Float64Type>().iter();
                values.map(|value| value.map(|value| self.angle.of(value)).transpose()).collect::<Result<_>>()?
            }
            [left, right] => {
                let pairs = left.as_primitive::<Float64Type>().iter().zip(right.as_primitive::<Float64Type>().iter());
                pairs.map(|(y, x)| y.zip(x).map(|(y, x)| y.atan2(x) / 1_f64.atan() * 45.0)).collect()
            }
            _ => return internal_err!("`{}` takes one or two numbers", self.name),
        };
        Ok(ColumnarValue::Array(Arc::new(found)))
    }
}

impl Angle {
    fn of(self, value: f64) -> Result<f64> {
        if value.is_nan() {
            return Ok(value);
        }
        let is_known = match self {
            Self::ArcSine | Self::ArcCosine => (-1.0..=1.0).contains(&value),
            Self::ArcTangent | Self::ArcTangentOfTwo => true,
            _ => value.is_finite(),
        };
        if !is_known {
            return exec_err!("input of `{value}` is out of range for an angle");
        }
        Ok(match self {
            Self::Sine => sine(value),
            Self::Cosine => cosine(value),
            Self::Tangent => without_sign_of_zero(sine(value) / cosine(value) / tangent_of_45()),
            Self::Cotangent => without_sign_of_zero(cosine(value) / sine(value) * tangent_of_45()),
            Self::ArcSine => value.signum() * arc_sine(value.abs()),
            Self::ArcCosine if value < 0.0 => 90.0 + arc_sine(-value),
            Self::ArcCosine => arc_cosine(value),
            Self::ArcTangent | Self::ArcTangentOfTwo => value.atan() / 1_f64.atan() * 45.0,
        })
    }
}

/// What is calculated of 45 degrees, in place of 1.
fn tangent_of_45() -> f64 {
    sine_to_90(45.0) / cosine_to_90(45.0)
}

fn without_sign_of_zero(value: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value }
}

fn sine(angle: f64) -> f64 {
    let turned = angle % 360.0;
    let (sign, turned) = if turned < 0.0 { (-1.0, -turned) } else { (1.0, turned) };
    let (sign, turned) = if turned > 180.0 { (-sign, 360.0 - turned) } else { (sign, turned) };
    without_sign_of_zero(sign * sine_to_90(if turned > 90.0 { 180.0 - turned } else { turned }))
}

fn cosine(angle: f64) -> f64 {
    let turned = (angle % 360.0).abs();
    let turned = if turned > 180.0 { 360.0 - turned } else { turned };
    let found = if turned > 90.0 { -cosine_to_90(180.0 - turned) } else { cosine_to_90(turned) };
    without_sign_of_zero(found)
}

/// The sine of at most 30 degrees, half of it at 30.
fn sine_to_30(angle: f64) -> f64 {
    angle.to_radians().sin() / 30_f64.to_radians().sin() / 2.0
}

/// The cosine of at most 60 degrees, half of it at 60.
fn cosine_to_60(angle: f64) -> f64 {
    1.0 - (1.0 - angle.to_radians().cos()) / (1.0 - 60_f64.to_radians().cos()) / 2.0
}

fn sine_to_90(angle: f64) -> f64 {
    if angle <= 30.0 { sine_to_30(angle) } else { cosine_to_60(90.0 - angle) }
}

fn cosine_to_90(angle: f64) -> f64 {
    if angle <= 60.0 { cosine_to_60(angle) } else { sine_to_30(90.0 - angle) }
}

/// The angle of a sine from 0 to 1.
fn arc_sine(value: f64) -> f64 {
    if value <= 0.5 { value.asin() / 0.5_f64.asin() * 30.0 } else { 90.0 - value.acos() / 0.5_f64.acos() * 60.0 }
}

/// The angle of a cosine from 0 to 1.
fn arc_cosine(value: f64) -> f64 {
    if value <= 0.5 { 90.0 - value.asin() / 0.5_f64.asin() * 30.0 } else { value.acos() / 0.5_f64.acos() * 60.0 }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{call, column, named};
    use super::*;

    fn degrees(name: &str, values: &[f64]) -> Result<Vec<f64>> {
        let column = |value: &f64| column(Float64Array::from(vec![*value]));
        let args: Vec<ColumnarValue> = values.iter().map(column).collect();
        let found = call(&named(functions(), name), &args, 1)?;
        Ok(found.as_primitive::<Float64Type>().values().to_vec())
    }

    #[test]
    fn known_angles_have_exact_values() {
        let infinity = f64::INFINITY;
        for (name, angle, expected) in [
            ("sind", 0.0, 0.0),
            ("sind", 30.0, 0.5),
            ("sind", 90.0, 1.0),
            ("sind", 150.0, 0.5),
            ("sind", 180.0, 0.0),
            ("sind", -30.0, -0.5),
            ("sind", 390.0, 0.5),
            ("sind", 270.0, -1.0),
            ("cosd", 0.0, 1.0),
            ("cosd", 60.0, 0.5),
            ("cosd", 90.0, 0.0),
            ("cosd", 120.0, -0.5),
            ("cosd", 270.0, 0.0),
            ("tand", 0.0, 0.0),
            ("tand", 45.0, 1.0),
            ("tand", 135.0, -1.0),
            ("tand", 225.0, 1.0),
            ("tand", 90.0, infinity),
            ("cotd", 45.0, 1.0),
            ("cotd", 90.0, 0.0),
            ("cotd", 0.0, infinity),
            ("asind", 0.5, 30.0),
            ("asind", -1.0, -90.0),
            ("acosd", 0.5, 60.0),
            ("acosd", -0.5, 120.0),
            ("acosd", 1.0, 0.0),
            ("acosd", -1.0, 180.0),
            ("atand", 1.0, 45.0),
            ("atand", infinity, 90.0),
        ] {
            assert_eq!(degrees(name, &[angle]).unwrap(), [expected], "{name}({angle})");
        }
        assert_eq!(degrees("atan2d", &[1.0, 1.0]).unwrap(), [45.0]);
        assert_eq!(degrees("atan2d", &[-1.0, -1.0]).unwrap(), [-135.0]);
    }

    #[test]
    fn there_are_values_without_angles() {
        for (name, value) in [("asind", 2.0), ("acosd", -1.5), ("sind", f64::INFINITY), ("tand", f64::NEG_INFINITY)] {
            let error = degrees(name, &[value]).unwrap_err().to_string();
            assert!(error.contains("is out of range for an angle"), "{name}({value}): {error}");
        }
        assert!(degrees("sind", &[f64::NAN]).unwrap()[0].is_nan());
        assert!((degrees("sind", &[10.0]).unwrap()[0] - 0.173_648_177_666_930_36).abs() < 1e-15);
    }
}
