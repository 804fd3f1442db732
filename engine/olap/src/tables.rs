//! The operator's tables: CSV and Parquet files in folders as read-only tables `public.NAME` (`olap-api.md` 10).

mod csv;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::datasource::{MemTable, TableProvider};
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use quiver_query::QueryContext;
use quiver_query::tables::{
    DomainAccess, PUBLIC_SCHEMA, SnapshotVersion, StoredData, TableEntry, TableRequest, TableSnapshot, Tables,
};
use quiver_types::{Error, MillisRange, Result};

/// Largest file; its rows are held in memory.
const FILE_BYTES_MAX: u64 = 256 << 20;
const BATCH_ROWS: usize = 8_192;

/// Numbers of what was read.
static VERSIONS: AtomicU64 = AtomicU64::new(1);

/// The tables of folders at one moment.
#[derive(Debug, Default)]
pub struct FolderTables {
    tables: BTreeMap<String, Arc<MemTable>>,
    /// Which reading it is: rows never change within one.
    version: u64,
}

impl FolderTables {
    /// Reads all files of folders.
    ///
    /// # Errors
    /// Every file that is refused, with line and column.
    pub fn read(folders: &[PathBuf]) -> Result<Self, Vec<String>> {
        let mut tables = BTreeMap::new();
        let mut problems = Vec::new();
        for folder in folders {
            let paths = match files(folder) {
                Ok(paths) => paths,
                Err(e) => {
                    problems.push(format!("{}: cannot be read: {e}", folder.display()));
                    continue;
                }
            };
            for path in paths {
                match table(&path) {
                    Ok(None) => {}
                    Ok(Some((name, made))) => {
                        if tables.insert(name.clone(), made).is_some() {
                            problems.push(format!("{}: there are two tables `{name}`", path.display()));
                        }
                    }
                    Err(e) => problems.push(format!("{}{e}", path.display())),
                }
            }
        }
        let version = VERSIONS.fetch_add(1, Ordering::Relaxed);
        if problems.is_empty() { Ok(Self { tables, version }) } else { Err(problems) }
    }

    /// They belong to no service, so they are for who sees everything; models with a right filter rows themselves.
    fn find(&self, request: &TableRequest<'_>) -> Option<&Arc<MemTable>> {
        let is_public = request.schema.is_none_or(|s| s == PUBLIC_SCHEMA);
        self.tables.get(request.name).filter(|_| is_public && request.access.is_full_everywhere())
    }
}

fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = std::fs::read_dir(folder)?.map(|e| e.map(|e| e.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Reads a file that is a table; an error begins with the place in it.
fn table(path: &Path) -> Result<Option<(String, Arc<MemTable>)>, String> {
    let kind = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    if !matches!(kind, "csv" | "parquet") {
        return Ok(None);
    }
    let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
    let mut chars = name.chars();
    let begins = chars.next().is_some_and(|c| c.is_ascii_lowercase() || c == '_');
    if !begins || !chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
        return Err(format!(": `{name}` cannot name a table; use small letters, digits and `_`"));
    }
    let (schema, batches) = if kind == "csv" { csv::read(path, &name, FILE_BYTES_MAX)? } else { read_parquet(path)? };
    let made = MemTable::try_new(schema, vec![batches]).map_err(|e| format!(": {e}"))?;
    Ok(Some((name, Arc::new(made))))
}

fn read_parquet(path: &Path) -> Result<(SchemaRef, Vec<RecordBatch>), String> {
    let failed = |e: &dyn std::fmt::Display| format!(": cannot be read: {e}");
    let file = quiver_files::open(path).map_err(|e| failed(&e))?;
    let size = file.metadata().map_err(|e| failed(&e))?.len();
    if size > FILE_BYTES_MAX {
        return Err(failed(&format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| failed(&e))?.with_batch_size(BATCH_ROWS);
    let schema = Arc::clone(builder.schema());
    let batches = builder.build().map_err(|e| failed(&e))?.collect::<Result<Vec<_>, _>>().map_err(|e| failed(&e))?;
    Ok((schema, batches))
}

/// The operator's tables before those of the product.
#[derive(Debug)]
pub struct LayeredTables {
    /// Tables of files in folders; replaced as a whole when files change.
    pub folders: Arc<ArcSwap<FolderTables>>,
    /// Tables of the product; none: there are only those of folders.
    pub product: Option<Arc<dyn Tables>>,
}

impl Tables for LayeredTables {
    fn snapshot(&self) -> Arc<dyn TableSnapshot> {
        let product = self.product.as_ref().map(|p| p.snapshot());
        Arc::new(LayeredSnapshot { folders: self.folders.load_full(), product })
    }
}

#[derive(Debug)]
struct LayeredSnapshot {
    folders: Arc<FolderTables>,
    product: Option<Arc<dyn TableSnapshot>>,
}

impl TableSnapshot for LayeredSnapshot {
    fn table<'a>(
        &'a self,
        request: &'a TableRequest<'a>,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn TableProvider>>>> {
        Box::pin(async move {
            if let Some(found) = self.folders.find(request) {
                return Ok(Some(Arc::clone(found) as Arc<dyn TableProvider>));
            }
            match &self.product {
                Some(product) => product.table(request, ctx).await,
                None => Ok(None),
            }
        })
    }

    fn list(&self, access: &DomainAccess) -> Vec<TableEntry> {
        let own = self.folders.tables.iter().filter(|_| access.is_full_everywhere());
        let own = own.map(|(name, table)| TableEntry {
            schema: PUBLIC_SCHEMA,
            name: name.clone(),
            columns: TableProvider::schema(&**table),
        });
        own.chain(self.product.iter().flat_map(|p| p.list(access))).collect()
    }

    fn version(&self, request: &TableRequest<'_>) -> Option<u64> {
        self.folders.find(request).map(|_| self.folders.version)
    }

    fn moment(&self) -> Option<SnapshotVersion> {
        self.product.as_ref().and_then(|product| product.moment())
    }

    fn stored(&self) -> Option<StoredData> {
        self.product.as_ref().and_then(|product| product.stored())
    }

    fn is_unchanged(&self, request: &TableRequest<'_>, since: &SnapshotVersion, range: MillisRange) -> Option<bool> {
        if self.folders.find(request).is_some() {
            return None;
        }
        self.product.as_ref().and_then(|product| product.is_unchanged(request, since, range))
    }
}

/// Says what is wrong with folders as one error.
pub fn folder_error(problems: &[String]) -> Error {
    Error::invalid(problems.join("\n"))
}

#[cfg(test)]
mod tests;
