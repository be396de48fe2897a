//! Which node a launch goes to. Pure: the facts and the counts are arguments.

use std::collections::BTreeMap;

use super::store::column;
use crate::types::Placement;
use crate::wire::NodeFacts;

/// Conditions that, when `True`, say that the node should get nothing more.
const PRESSURES: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];
/// Taint effects that keep out a Pod without a matching toleration; launches have none yet.
const REPELLING_EFFECTS: [&str; 2] = ["NoSchedule", "NoExecute"];

/// Why a launch that named no node may not go to this one; `None` when it may.
///
/// A daemon that may not read its Node object sends no conditions: that is no obstacle, since the scheduler decides in the end.
pub(crate) fn obstacle(facts: &NodeFacts) -> Option<String> {
    if facts.unschedulable {
        return Some("it is cordoned".into());
    }
    if !facts.conditions.is_empty() && !facts.conditions.iter().any(|name| name == "Ready") {
        return Some("it is not Ready".into());
    }
    if let Some(pressure) = facts.conditions.iter().find(|name| PRESSURES.contains(&name.as_str())) {
        return Some(format!("its condition {pressure} is True"));
    }
    let taint = facts.taints.iter().find(|taint| REPELLING_EFFECTS.contains(&taint.effect.as_str()))?;
    Some(format!("it has the taint {}:{}", taint.key, taint.effect))
}

/// Splits live daemons' nodes into those that may get a launch and the obstacles of the others.
pub(crate) fn eligible<'a>(live: impl IntoIterator<Item = &'a NodeFacts>) -> (Vec<Placement>, Vec<String>) {
    let (mut nodes, mut obstacles) = (Vec::new(), Vec::new());
    for facts in live {
        match obstacle(facts) {
            None => nodes.push(Placement::Node(facts.name.clone())),
            Some(why) => obstacles.push(format!("{}: {why}", facts.name)),
        }
    }
    (nodes, obstacles)
}

/// The candidate with the fewest open instances; of several, the first by name, so that the choice can be explained.
pub(crate) fn least_loaded<'a>(candidates: &'a [Placement], open: &BTreeMap<String, u64>) -> Option<&'a Placement> {
    candidates.iter().min_by_key(|place| (open.get(column(place)).copied().unwrap_or(0), column(place)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Taint;

    fn node(name: &str) -> NodeFacts {
        NodeFacts {
            name: name.parse().expect("a node name"),
            uid: None,
            labels: BTreeMap::new(),
            taints: vec![],
            allocatable: BTreeMap::new(),
            conditions: vec!["Ready".into()],
            unschedulable: false,
        }
    }

    #[test]
    fn a_node_that_would_keep_the_pod_waiting_is_not_chosen() {
        let taint = |effect: &str| Taint { key: "dedicated".into(), value: "x".into(), effect: effect.into() };
        let table = [
            (node("ready"), None),
            (NodeFacts { conditions: vec![], ..node("unread") }, None),
            (NodeFacts { taints: vec![taint("PreferNoSchedule")], ..node("soft") }, None),
            (NodeFacts { unschedulable: true, ..node("cordoned") }, Some("it is cordoned")),
            (NodeFacts { conditions: vec!["Other".into()], ..node("unready") }, Some("it is not Ready")),
            (NodeFacts { conditions: vec!["Ready".into(), "DiskPressure".into()], ..node("full") }, Some("its condition DiskPressure is True")),
            (NodeFacts { taints: vec![taint("NoSchedule")], ..node("tainted") }, Some("it has the taint dedicated:NoSchedule")),
            (NodeFacts { taints: vec![taint("NoExecute")], ..node("evicting") }, Some("it has the taint dedicated:NoExecute")),
        ];
        for (facts, expected) in &table {
            assert_eq!(obstacle(facts).as_deref(), *expected, "{}", facts.name);
        }
        let (nodes, obstacles) = eligible(table.iter().map(|(facts, _)| facts));
        assert_eq!(nodes.iter().map(column).collect::<Vec<_>>(), ["ready", "unread", "soft"]);
        assert_eq!(obstacles.len(), 5);
    }

    #[test]
    fn the_node_with_the_fewest_open_instances_is_chosen_and_ties_go_by_name() {
        let nodes: Vec<Placement> = ["b", "a", "c"].iter().map(|name| Placement::Node(name.parse().expect("a node name"))).collect();
        let choose = |open: &[(&str, u64)]| {
            let open = open.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
            least_loaded(&nodes, &open).map(column)
        };
        assert_eq!(choose(&[]), Some("a"));
        assert_eq!(choose(&[("a", 2), ("b", 1), ("c", 1)]), Some("b"));
        assert_eq!(choose(&[("a", 1), ("b", 1), ("elsewhere", 0)]), Some("c"));
        assert_eq!(least_loaded(&[], &BTreeMap::new()), None);
    }
}
