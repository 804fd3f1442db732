//! What joins hold is put below the node, and what they only read is not.

use arrow::datatypes::{Field, Schema};
use datafusion::physical_plan::displayable;
use datafusion::physical_plan::empty::EmptyExec;

use super::*;
use crate::node_encoding::tests::passed;

fn side(name: &str, kind: DataType) -> Arc<dyn ExecutionPlan> {
    Arc::new(EmptyExec::new(Arc::new(Schema::new(vec![Field::new(name, kind, true)]))))
}

#[test]
fn only_what_joins_hold_is_held() {
    let text = || side("t", DataType::Utf8View);
    let number = || side("n", DataType::Int64);
    let join = |left, right| -> Arc<dyn ExecutionPlan> { Arc::new(CrossJoinExec::new(left, right)) };
    for (plan, count) in [
        (join(text(), number()), 1),
        (join(side("b", DataType::BinaryView), text()), 1),
        (join(number(), text()), 0),
        (text(), 0),
    ] {
        let plan = held(plan).unwrap();
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        assert_eq!(shown.matches("HeldTextsExec").count(), count, "{shown}");
        assert_eq!(plan.children().first().is_some_and(|side| side.is::<HeldTextsExec>()), count > 0, "{shown}");
        let (_, names) = passed(plan);
        assert_eq!(names.contains("HeldTextsExec"), count > 0, "{names:?}");
    }
}
