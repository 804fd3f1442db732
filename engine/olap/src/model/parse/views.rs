//! Reads views.

use std::sync::Arc;

use quiver_yaml::Node;
use quiver_yaml::problem::{Code, Problems};

use super::Reader;
use crate::model::{Folder, FolderItem, Include, View, ViewPart};

pub(super) fn view(node: &Node, file: &Arc<str>, problems: &mut Problems) -> Option<View> {
    let mut r = Reader::new(node, "", problems)?;
    let common = r.common()?;
    let parts = r.list("cubes").iter().filter_map(|n| part(n, r.problems)).collect();
    let folders = r.list("folders").iter().filter_map(|n| folder(n, r.problems)).collect();
    r.finish();
    Some(View { common, file: Arc::clone(file), parts, folders, members: Vec::new(), hierarchies: Vec::new() })
}

fn path_of(text: &str) -> Vec<String> {
    text.split('.').map(str::to_owned).collect()
}

fn part(node: &Node, problems: &mut Problems) -> Option<ViewPart> {
    let mut r = Reader::new(node, "", problems)?;
    let Some(path) = r.text("join_path") else {
        r.fields.problem("join_path", Code::Required, "a part of a view needs `join_path`", r.problems);
        return None;
    };
    let path = path_of(&path);
    let includes = match r.fields.some("includes") {
        Some(n) if n.text() == Some("*") => None,
        Some(_) => Some(r.list("includes").iter().filter_map(|n| include(n, r.problems)).collect()),
        None => Some(Vec::new()),
    };
    let excludes = r.texts("excludes");
    let alias = r.text("alias");
    let prefix = r.truth("prefix").unwrap_or(false).then(|| alias.or_else(|| path.last().cloned())).flatten();
    r.finish();
    Some(ViewPart { path, includes, excludes, prefix, place: node.place })
}

fn include(node: &Node, problems: &mut Problems) -> Option<Include> {
    if let Some(name) = node.text() {
        return Some(Include::named(name, node.place));
    }
    let mut r = Reader::new(node, "", problems)?;
    let alias = r.text("alias");
    let mut own = r.common()?;
    let name = std::mem::take(&mut own.name);
    own.name = alias.unwrap_or_else(|| name.clone());
    r.finish();
    Some(Include { name, own })
}

fn folder(node: &Node, problems: &mut Problems) -> Option<Folder> {
    let mut r = Reader::new(node, "", problems)?;
    let name = r.text("name");
    if name.is_none() {
        r.fields.problem("name", Code::Required, "a folder needs a `name`", r.problems);
    }
    let includes = match r.fields.some("includes") {
        Some(n) if n.text() == Some("*") => vec![FolderItem::All],
        Some(_) => r.list("includes").iter().filter_map(|n| item(n, r.problems)).collect(),
        None => Vec::new(),
    };
    r.finish();
    Some(Folder { name: name?, includes, place: node.place })
}

fn item(node: &Node, problems: &mut Problems) -> Option<FolderItem> {
    if let Some(name) = node.text() {
        return Some(FolderItem::Member(name.to_owned()));
    }
    if node.get("join_path").is_none() {
        return folder(node, problems).map(FolderItem::Folder);
    }
    let mut r = Reader::new(node, "", problems)?;
    let path = r.text("join_path");
    r.finish();
    path.map(|path| FolderItem::Part(path_of(&path)))
}
